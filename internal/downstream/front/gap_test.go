package front

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A client that opens its standalone stream is known to have missed messages if some were dropped
// before it could get them, and if it resumes behind a position that the stream does not have. It
// gets the messages from then on.
func TestAGapOfTheStandaloneStreamIsReported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		put   int
		after uint64
		gap   bool
	}{
		"nothing was dropped":             {logUnsent, unsent, false},
		"dropped before the first stream": {logUnsent + 1, unsent, true},
		"resumed behind what was dropped": {logUnsent + 1, 1, false},
		"resumed before it":               {logUnsent + 1, 0, true},
		"resumed at the end":              {3, 3, false},
		"resumed behind the end":          {3, 4, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newEventLog(0, true)
			for range c.put {
				l.put([]byte(`{}`), 0)
			}
			server, client := net.Pipe()
			client.SetDeadline(time.Now().Add(20 * time.Second))
			t.Cleanup(func() { server.Close(); client.Close() })
			gen, _ := l.reserve(false)
			if gap, ok := l.attachRaw(&rawStream{conn: server}, gen, c.after); gap != c.gap || !ok {
				t.Errorf("gap %v, attached %v", gap, ok)
			}
			l.put([]byte(`{"last":true}`), 0)
			for got := []byte(nil); !bytes.Contains(got, []byte("last")); {
				b := make([]byte, 4096)
				n, err := client.Read(b)
				if err != nil {
					t.Fatalf("the last message does not come: %v", err)
				}
				got = b[:n]
			}
		})
	}
}

// The Handler learns of a gap when the stream is opened, and of one in each session of an earlier
// run of the daemon.
func TestTheHandlerLearnsOfAGap(t *testing.T) {
	t.Parallel()
	next, earlier := restarted(t)
	for name, c := range map[string]struct {
		h   *house
		id  string // empty: of a new session
		gap bool
	}{"a new session": {open(t, Options{}), "", false}, "a session of an earlier run": {next, earlier, true}} {
		gaps := make(chan bool, 1)
		c.h.watch = func(x *Exchange) {
			if x.Method == Listening {
				gaps <- x.Gap
			}
		}
		if c.id == "" {
			c.id = c.h.session("2025-11-25")
		}
		c.h.stream("GET", "/mcp/s", "", "Mcp-Session-Id", c.id)
		select {
		case gap := <-gaps:
			if gap != c.gap {
				t.Errorf("%s: gap %v, want %v", name, gap, c.gap)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: the stream is not announced", name)
		}
	}
}

// watchedConn calls a function before the address for POSTs is written.
type watchedConn struct {
	net.Conn
	endpoint func()
}

func (c watchedConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("/messages")) {
		c.endpoint()
	}
	return c.Conn.Write(b)
}

// watching is the ResponseWriter whose connection is a watchedConn.
type watching struct {
	http.ResponseWriter
	endpoint func()
}

func (w watching) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := w.ResponseWriter.(http.Hijacker).Hijack()
	return watchedConn{c, w.endpoint}, rw, err
}

// A session of HTTP+SSE listens before its client knows where to send its first message, since the
// handler of that message asks whether it does.
func TestASessionOfHTTPAndSSEListensFromTheStart(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	listening := make(chan bool, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.door.ServeHTTP(watching{w, func() { h.door.Each(func(s *Session) bool { listening <- s.Listening(); return false }) }}, r)
	}))
	t.Cleanup(srv.Close)
	h.url = srv.URL
	_, events := h.stream("GET", "/sse/s", "")
	frame(t, events)
	if !<-listening {
		t.Error("the session does not listen yet")
	}
}
