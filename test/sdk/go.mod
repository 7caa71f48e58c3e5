// A module of its own: the official SDK is a peer in tests, and no dependency of Doorward.
module github.com/doorward/doorward/test/sdk

go 1.26.8

require github.com/modelcontextprotocol/go-sdk v1.8.0

require (
	github.com/google/jsonschema-go v0.4.3 // indirect
	github.com/segmentio/asm v1.1.3 // indirect
	github.com/segmentio/encoding v0.5.4 // indirect
	github.com/yosida95/uritemplate/v3 v3.0.2 // indirect
	golang.org/x/oauth2 v0.37.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/time v0.15.0 // indirect
)

tool (
	github.com/doorward/doorward/test/sdk
	github.com/modelcontextprotocol/go-sdk/conformance/everything-server
)
