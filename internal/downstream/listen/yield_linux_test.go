package listen

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// known serves a listener: a request with Authorization is one of an authenticated caller, and
// one for /wait is answered when the returned channel is closed.
func known(t *testing.T, l *Listener) (answer chan struct{}) {
	t.Helper()
	answer = make(chan struct{})
	srv := &http.Server{ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute, ConnState: l.ConnState,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return l.ConnContext(ctx, c) },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			if !Serve(r.Context()) {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			if r.URL.Path == "/wait" {
				<-answer
			}
			io.WriteString(w, "served")
		})}
	go srv.Serve(l.Net())
	t.Cleanup(func() { srv.Close() })
	return answer
}

func (l *Listener) yields() (n int) {
	l.yielding.mu.Lock()
	defer l.yielding.mu.Unlock()
	for c := range l.yielding.conns {
		if c.yields.Load() {
			n++
		}
	}
	return n
}

const knownRequest = "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: yes\r\n\r\n"

// Connections on which no authenticated caller is served give way on a full listener, wherever
// they stop: further callers are served, and so is the one that waits for its answer.
func TestACallerWithoutACredentialKeepsNoOtherOut(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]string{
		"nothing":             "",
		"a part of a head":    "POST /mcp HTTP/1.1\r\nHost: x\r\n",
		"no body":             "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
		"a part of a body":    "POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n",
		"a refused request":   aRequest,
		"an answered request": knownRequest,
		"a part of a second":  knownRequest + "GET / HTT",
	} {
		for _, kind := range []string{"TCP", "TCP that rests", "TLS"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				keepsNoneOut(t, kind, send)
			})
		}
	}
	t.Run("a part of a handshake", func(t *testing.T) {
		t.Parallel()
		keepsNoneOut(t, "TLS without a handshake", "\x16\x03\x01")
	})
}

func keepsNoneOut(t *testing.T, kind, send string) {
	const most = 4
	s, o := Spec{Network: "tcp", Addr: "127.0.0.1:0"}, Options{MaxConns: most}
	if kind == "TCP that rests" {
		o.Arrivals = newArrivals(t)
	}
	if kind[:3] == "TLS" {
		s.CertFile, s.KeyFile = filepath.Join(t.TempDir(), "c"), filepath.Join(t.TempDir(), "k")
		writePair(t, s.CertFile, s.KeyFile)
	}
	l := mustOpen(t, s, Credential{}, o)
	answer := known(t, l)
	dial := func(secured bool) asking {
		c, err := net.Dial("tcp", l.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if secured && l.TLS {
			c = tls.Client(c, &tls.Config{InsecureSkipVerify: true}) // the test knows the other end
		}
		return asking{c, bufio.NewReader(c)}
	}
	waits := dial(true)
	io.WriteString(waits, "GET /wait HTTP/1.1\r\nHost: x\r\nAuthorization: yes\r\n\r\n")
	eventually(t, "it is served", func() bool { return l.Open() == 1 && l.yields() == 0 })
	for range most - 1 {
		c := dial(kind != "TLS without a handshake")
		rest, asks := strings.CutPrefix(send, knownRequest)
		if asks {
			c.get(t, knownRequest)
		}
		io.WriteString(c, rest)
	}
	for range 2 * most {
		eventually(t, "the listener is full", func() bool { return l.Open() == most && l.yields() == most-1 })
		if got := dial(true).get(t, knownRequest); got != "served" {
			t.Fatalf("%q", got)
		}
	}
	close(answer)
	if got := waits.get(t); got != "served" {
		t.Errorf("the one that waits got %q", got)
	}
}

// For a caller that has all the connections it may have, none of another one gives way.
func TestNoConnectionGivesWayToACallerAtItsLimit(t *testing.T) {
	t.Parallel()
	s := newSeats(3, 2)
	a, b := remoteSeat(netip.MustParseAddr("192.0.2.1")), remoteSeat(netip.MustParseAddr("192.0.2.2"))
	for i, tc := range []struct {
		at     seat
		reason string
	}{{a, ""}, {a, ""}, {b, ""}, {a, ReasonTooManyHere}, {b, ReasonTooMany}, {seat{}, ReasonTooMany}} {
		if got := s.take(tc.at); got != tc.reason {
			t.Errorf("%d: %q, want %q", i, got, tc.reason)
		}
	}
}
