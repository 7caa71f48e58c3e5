// A module of its own: nothing that drives a browser is a dependency of Doorward.
module github.com/doorward/doorward/test/console

go 1.26.8

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
	github.com/doorward/doorward v0.0.0
)

require (
	github.com/go-jose/go-jose/v4 v4.1.4 // indirect
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
)

replace github.com/doorward/doorward => ../..
