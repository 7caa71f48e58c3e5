package upstream

import (
	"errors"
	"net"
	"strings"
	"testing"
)

// A connection over TLS that is cut before the handshake is complete has carried nothing of the
// request.
func TestACutHandshakeCountsAsNotSent(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(net.Conn){
		"at once":              func(net.Conn) {},
		"after the first line": func(c net.Conn) { _, _ = c.Read(make([]byte, 1<<10)) },
		"with half a record":   func(c net.Conn) { _, _ = c.Write([]byte{22, 3, 3}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := webServer(t, "https://"+cutter(t, cut)+"/mcp", func(_ *Definition, deps *Deps) { deps.Log = discard })
			for range circuitFailures {
				if _, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil); !errors.Is(err, ErrNotSent) || wrapped(err) != 1 {
					t.Fatalf("%v", err)
				}
			}
			if _, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil); !errors.Is(err, ErrOpen) {
				t.Errorf("after %d failures: %v", circuitFailures, err)
			}
		})
	}
}

// cutter listens, and closes each connection after cut.
func cutter(t *testing.T, cut func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			cut(c)
			c.Close()
		}
	}()
	return l.Addr().String()
}

// The error of a request says that the proxy of the configuration is not usable, and why, without
// its URL.
func TestAnUnusableProxyIsNamed(t *testing.T) {
	t.Parallel()
	for proxy, why := range map[string]string{
		"http://user:secret@proxy.example:3128": "user information is not allowed",
		"proxy.example:3128":                    "the scheme must be http or https",
		"http://proxy.example/path?secret":      "a path or query is not allowed",
	} {
		for _, scheme := range []string{"http", "https"} {
			_, _, err := proxied(t, proxy, scheme).DialLegacy(testContext(t), []byte(initParams), nil)
			if !errors.Is(err, ErrNotSent) || !strings.Contains(err.Error(), "egress.proxy of the configuration cannot be used: proxy: "+why) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s through %s: %v", scheme, proxy, err)
			}
		}
	}
}
