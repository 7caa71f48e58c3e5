//go:build linux

package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
)

// The benchmark starts itself again as the programs to compare with. These first arguments select
// the mode; the comments name the further arguments.
const (
	modeReverseProxy = "mode-reverse-proxy" // URL of the upstream
	modeRelay        = "mode-relay"         // URL of the upstream
	modeBridge       = "mode-bridge"        // command of the stdio server, one for each session
	modeBridgeShared = "mode-bridge-shared" // the same, one server for all sessions
	modeBook         = "mode-book"          // directory of the messages
	modeConnect      = "mode-connect"       // addresses: connects to each once and prints the times
)

// runMode runs the hidden mode that the arguments name, until the process ends. It reports whether
// they name one.
func runMode(args []string) (bool, error) {
	if len(args) < 2 {
		return false, nil
	}
	switch args[0] {
	case modeReverseProxy, modeRelay:
		target, err := url.Parse(args[1])
		if err != nil {
			return true, fmt.Errorf("reading the upstream's URL: %w", err)
		}
		if args[0] == modeRelay {
			return true, serveMode(newBareRelay(target))
		}
		return true, serveMode(newReverseProxy(target))
	case modeBridge, modeBridgeShared:
		return true, serveMode(newBridge(args[0] == modeBridgeShared, args[1:]))
	case modeConnect:
		return true, printConnects(args[1:])
	case modeBook:
		return true, serveBook(args[1])
	}
	return false, nil
}

func serveMode(handler http.Handler) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	fmt.Printf("listening %s\n", l.Addr())
	return http.Serve(l, handler)
}

// newReverseProxy returns the usual Go proxy in front of a streaming server: the standard
// library's, with each write flushed and enough idle connections for the sessions. With the default
// of two idle connections a host it would dial for most calls, which would favour the paths
// compared with it.
//
// Full duplex is needed for correctness. Without it the server closes the request's body when the
// answer begins, and the call fails if the transport has not yet read the end of that body. With
// upstreams as fast as these the race occurs within some hundred calls.
func newReverseProxy(target *url.URL) http.Handler {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns = 0
	transport.MaxIdleConnsPerHost = 256
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = transport
	proxy.FlushInterval = -1
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}
