//go:build linux

package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
)

// The benchmark starts itself again as what it compares with, under these first arguments.
const (
	modeReverseProxy = "mode-reverse-proxy" // then the URL of the upstream
	modeRelay        = "mode-relay"         // then the URL of the upstream
	modeBridge       = "mode-bridge"        // then the command of the stdio server, one a session
	modeBridgeShared = "mode-bridge-shared" // the same, one server for all sessions
	modeBook         = "mode-book"          // then the directory of the messages
	modeConnect      = "mode-connect"       // then addresses: connects to each once and prints how long it took
)

// runMode serves the hidden mode that the arguments name until the process is ended. It reports whether
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

// newReverseProxy is what a Go programmer would put in front of a server that streams: the proxy of the
// standard library, each write flushed, and enough idle connections for the sessions at hand. The default
// of two idle connections a host would make it dial for most calls, and flatter whoever is compared to it.
//
// Full duplex is what keeps it correct: without, the server closes the request's body when the answer
// begins, and where the transport has not yet seen the end of that body it fails the call. Upstreams as
// fast as these meet that race within some hundred calls.
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
