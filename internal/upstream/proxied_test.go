package upstream

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// badProxy starts a proxy that does with each request what serve does.
func badProxy(t *testing.T, serve http.HandlerFunc) (url string) {
	p := httptest.NewServer(serve)
	t.Cleanup(p.Close)
	return p.URL
}

// A server behind a proxy that cannot be connected to has not got the request, and after
// several failures it is not tried for a while. One that was connected to may have got it.
func TestConnectingThroughAProxy(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	cut := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for name, c := range map[string]struct{ proxy, target string }{
		"no proxy":    {"http://" + l.Addr().String(), "https"},
		"http":        {"http://" + l.Addr().String(), "http"},
		"it closes":   {badProxy(t, cut), "https"},
		"it refuses":  {badProxy(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }), "https"},
		"no TLS":      {badProxy(t, tunnel), "https"},
		"half a line": {badProxy(t, half), "https"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := proxied(t, c.proxy, c.target)
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
	s := proxied(t, badProxy(t, cut), "http") // here the request itself goes to the proxy
	for range 2 * circuitFailures {
		if _, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil); !errors.Is(err, ErrLost) {
			t.Fatalf("a request that was cut off: %v", err)
		}
	}
}

func proxied(t *testing.T, proxy, scheme string) *Server {
	return webServer(t, scheme+"://mcp.example/mcp", func(d *Definition, deps *Deps) {
		d.AllowPrivate, deps.Proxy, deps.Log = false, proxy, discard
	})
}

// tunnel accepts a CONNECT, and closes the connection.
func tunnel(w http.ResponseWriter, _ *http.Request) { answerRaw(w, "HTTP/1.1 200 OK\r\n\r\n") }

// half answers a CONNECT with a part of a status line.
func half(w http.ResponseWriter, _ *http.Request) { answerRaw(w, "HTTP/1.1 2") }

func answerRaw(w http.ResponseWriter, text string) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_, _ = c.Write([]byte(text)) // the other end sees what came
		c.Close()
	}
}
