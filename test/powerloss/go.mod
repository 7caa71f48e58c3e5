// A module of its own: nothing of FUSE is a dependency of Doorward.
module github.com/doorward/doorward/test/powerloss

go 1.26.0

require github.com/hanwen/go-fuse/v2 v2.12.1

require (
	github.com/ncruces/go-sqlite3-wasm/v6 v6.3.35304 // indirect
	github.com/ncruces/julianday v1.0.0 // indirect
)

require (
	github.com/ncruces/go-sqlite3 v0.35.6
	golang.org/x/sys v0.48.0 // indirect
)
