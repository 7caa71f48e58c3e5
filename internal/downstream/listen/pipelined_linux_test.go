package listen

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// slow serves a listener whose connections rest after a moment, and whose handler reads the
// body of a request with a deadline.
func slow(t *testing.T, l *Listener) {
	const moment = 500 * time.Millisecond
	srv := &http.Server{ReadHeaderTimeout: moment, IdleTimeout: moment, ConnState: l.ConnState,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return l.ConnContext(ctx, c) },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength != 0 {
				http.NewResponseController(w).SetReadDeadline(time.Now().Add(moment))
			}
			io.Copy(io.Discard, r.Body)
		})}
	go srv.Serve(l.Net())
	t.Cleanup(func() { srv.Close() })
}

// A connection on which a part of a request has arrived does not rest, also if that part came
// together with the request before it: the other part would be read as a request of its own.
func TestAConnectionWithAPipelinedPartDoesNotRest(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]string{
		"of the first line": "GET /",
		"a line":            "GET / HTTP/1.1\r\n",
		"two lines":         "GET / HTTP/1.1\r\nHost: x\r\n",
		"a head":            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4096\r\n\r\n",
		"a head, chunked":   "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, c := slowly(t)
			c.get(t, aRequest+part)
			eventually(t, "the connection ends", func() bool { return l.Open() == 0 || l.atRest() > 0 })
			if l.atRest() > 0 {
				t.Error("it rests")
			}
		})
	}
}

// slowly returns a slow listener and a client of it.
func slowly(t *testing.T) (*Listener, asking) {
	t.Helper()
	l := openLoopback(t, Options{Arrivals: newArrivals(t)})
	slow(t, l)
	raw, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	return l, asking{raw, bufio.NewReader(raw)}
}

// The first bytes of a request that follow a pipelined part do not extend its time.
func TestAPipelinedPartHasNoLongerTime(t *testing.T) {
	t.Parallel()
	l, c := slowly(t)
	c.get(t, aRequest+"GET / HTTP/1.1\r\n")
	io.WriteString(c, "H")
	eventually(t, "the connection ends", func() bool { return l.Open() == 0 })
}

// A part of a request that ends a rest has the time of a header, and then the connection ends.
func TestAPartAfterARestHasTheTimeOfAHeader(t *testing.T) {
	t.Parallel()
	eachResting(t, func(t *testing.T, l *Listener, c asking) {
		for _, c := range []asking{c, another(t, l)} {
			eventually(t, "each connection rests", func() bool { return l.atRest() == l.Open() })
			open := l.Open()
			io.WriteString(c, "G")
			eventually(t, "the connection ends", func() bool { return l.Open() == open-1 })
		}
	})
}

func another(t *testing.T, l *Listener) asking {
	t.Helper()
	raw, err := net.Dial(l.sockets[0].Addr().Network(), l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	c := asking{raw, bufio.NewReader(raw)}
	c.get(t, aRequest)
	return c
}
