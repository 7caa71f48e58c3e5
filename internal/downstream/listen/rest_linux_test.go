package listen

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/downstream/peer"
)

func newArrivals(t *testing.T) *peer.Arrivals {
	t.Helper()
	a, err := peer.NewArrivals()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// restful serves a listener whose connections rest after a moment. /facts counts the requests
// of a connection in its facts.
func restful(t *testing.T, l *Listener) {
	srv := &http.Server{ReadHeaderTimeout: 500 * time.Millisecond, IdleTimeout: 20 * time.Millisecond, ConnState: l.ConnState,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			ctx = l.ConnContext(ctx, c)
			o := From(ctx)
			known, _ := o.Facts.(string)
			o.Facts = known + "+"
			return ctx
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/expel" {
				From(r.Context()).Expel()
			}
			io.WriteString(w, From(r.Context()).Facts.(string))
		})}
	go srv.Serve(l.Net())
	t.Cleanup(func() { srv.Close() })
}

// asking is a client's connection.
type asking struct {
	net.Conn
	in *bufio.Reader
}

func (a asking) get(t *testing.T, pieces ...string) string {
	t.Helper()
	for _, p := range pieces {
		io.WriteString(a, p)
	}
	a.SetReadDeadline(time.Now().Add(10 * time.Second))
	resp, err := http.ReadResponse(a.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (l *Listener) atRest() int {
	l.resting.mu.Lock()
	defer l.resting.mu.Unlock()
	return len(l.resting.conns)
}

const aRequest = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

// eachResting runs a test with an open listener of each network, and a client whose connection rests.
func eachResting(t *testing.T, test func(t *testing.T, l *Listener, c asking)) {
	for name, open := range map[string]func(testing.TB, Options) *Listener{"unix": openSocket, "tcp": openLoopback} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t, Options{Arrivals: newArrivals(t)})
			restful(t, l)
			raw, err := net.Dial(l.sockets[0].Addr().Network(), l.Addr())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { raw.Close() })
			c := asking{raw, bufio.NewReader(raw)}
			if got := c.get(t, aRequest); got != "+" {
				t.Fatalf("answer %q", got)
			}
			eventually(t, "the connection rests", func() bool { return l.atRest() == 1 })
			test(t, l, c)
		})
	}
}

// A connection rests between two requests, keeps its place and its facts, and serves further
// requests however they are cut into pieces.
func TestAnIdleConnectionRests(t *testing.T) {
	t.Parallel()
	eachResting(t, func(t *testing.T, l *Listener, c asking) {
		if l.Open() != 1 {
			t.Errorf("%d open connections", l.Open())
		}
		for _, pieces := range [][]string{{aRequest}, {"G", aRequest[1:]}, {aRequest[:4], aRequest[4:]}} {
			if got := c.get(t, pieces...); !strings.HasPrefix(got, "+") {
				t.Errorf("answer %q", got)
			}
			eventually(t, "the connection rests again", func() bool { return l.atRest() == 1 })
		}
		if got := c.get(t, aRequest); got != "+++++" {
			t.Errorf("facts %q: a connection that rested four times has the facts of its beginning", got)
		}
		c.Close()
		eventually(t, "the connection ends", func() bool { return l.Open() == 0 && l.atRest() == 0 })
	})
}

func TestARestEnds(t *testing.T) {
	t.Parallel()
	ends := map[string]func(t *testing.T, l *Listener, c asking){
		"the listener is closed": func(_ *testing.T, l *Listener, c asking) { l.Close() },
		"its time has passed":    func(_ *testing.T, l *Listener, c asking) { l.expire(time.Now().Add(time.Second)) },
		"its client has left":    func(_ *testing.T, l *Listener, c asking) { c.Close() },
		"it is expelled":         func(t *testing.T, _ *Listener, c asking) { c.get(t, "GET /expel HTTP/1.1\r\nHost: x\r\n\r\n") },
	}
	ends["its process has ended"] = func(_ *testing.T, l *Listener, c asking) {
		l.resting.old(time.Now().Add(time.Second))[0].end()
		if l.atRest() != 0 {
			t.Error("an ended connection rests")
		}
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachResting(t, func(t *testing.T, l *Listener, c asking) {
				end(t, l, c)
				eventually(t, "the connection ends", func() bool { return l.Open() == 0 && l.atRest() == 0 })
				c.SetReadDeadline(time.Now().Add(10 * time.Second))
				if _, err := c.in.ReadByte(); err == nil || os.IsTimeout(err) {
					t.Errorf("the client reads %v", err)
				}
			})
		})
	}
}

// A connection whose client has not sent a request, or has sent a part of one, does not rest.
func TestOnlyAConnectionBetweenRequestsRests(t *testing.T) {
	t.Parallel()
	l := openLoopback(t, Options{Arrivals: newArrivals(t)})
	restful(t, l)
	for _, sent := range []string{"", "G", "GET / HT"} {
		c, err := net.Dial("tcp", l.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, sent)
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if text, err := io.ReadAll(c); err != nil || l.atRest() != 0 {
			t.Errorf("after %q: %q, %v, %d rest", sent, text, err, l.atRest())
		}
	}
	for _, tt := range []struct {
		idle bool
		size int
		err  error
		want bool
	}{
		{true, readBuffer, os.ErrDeadlineExceeded, true},
		{false, readBuffer, os.ErrDeadlineExceeded, false},
		{true, readBuffer - 1, os.ErrDeadlineExceeded, false}, // a byte of the next request is in the buffer
		{true, readBuffer, io.EOF, false},
	} {
		c := &conn{}
		c.idle.Store(tt.idle)
		c.tires(tt.size, tt.err)
		if c.tired.Load() != tt.want {
			t.Errorf("%+v: rests %v", tt, c.tired.Load())
		}
	}
}

// deadlines notes the deadlines of reads.
type deadlines struct {
	net.Conn
	set []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

func (d *deadlines) Read([]byte) (int, error) { return 0, io.EOF }

// The first bytes of a request may come shortly before the deadline after which a connection
// rests, and the others later.
func TestARequestThatHasBegunHasTime(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		idle bool
		n    int
		want bool
	}{{true, 1, true}, {true, 3, true}, {true, 4, false}, {false, 1, false}} {
		d := &deadlines{}
		c := &conn{Conn: d}
		c.idle.Store(tt.idle)
		c.roused(tt.n)
		c.timedRead(nil)
		if got := len(d.set) == 1 && time.Until(d.set[0]) > time.Minute; got != tt.want || c.idle.Load() {
			t.Errorf("%+v: deadlines %v, idle %v", tt, d.set, c.idle.Load())
		}
	}
}

func TestWithoutArrivalsNothingRests(t *testing.T) {
	t.Parallel()
	l := openLoopback(t, Options{})
	restful(t, l)
	raw, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	asking{raw, bufio.NewReader(raw)}.get(t, aRequest)
	eventually(t, "the idle connection ends", func() bool { return l.Open() == 0 })
}

// oneAccepted returns a listener and the connection that it has accepted.
func oneAccepted(t *testing.T) (*Listener, *conn) {
	t.Helper()
	l := openLoopback(t, Options{Arrivals: newArrivals(t)})
	conns := accepted(t, l)
	client, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return l, next(t, conns).(*conn)
}

func TestNothingRestsAtAClosedListener(t *testing.T) {
	t.Parallel()
	l, c := oneAccepted(t)
	l.Close()
	c.tired.Store(true)
	if c.Close(); l.Open() != 0 || l.atRest() != 0 {
		t.Errorf("%d open, %d rest", l.Open(), l.atRest())
	}
}

func TestAwait(t *testing.T) {
	t.Parallel()
	ends := map[string]func(client, served net.Conn){
		"data":          func(client, _ net.Conn) { client.Write([]byte("x")) },
		"the other end": func(client, _ net.Conn) { client.Close() },
		"this end":      func(_, served net.Conn) { served.Close() },
	}
	for name, end := range ends {
		for network, open := range map[string]func(testing.TB, Options) *Listener{"unix": openSocket, "tcp": openLoopback} {
			t.Run(name+" "+network, func(t *testing.T) {
				t.Parallel()
				l := open(t, Options{Arrivals: newArrivals(t)})
				conns := accepted(t, l)
				client, err := net.Dial(l.sockets[0].Addr().Network(), l.Addr())
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close()
				served := next(t, conns)
				called := make(chan struct{}, 2)
				if !Await(served, func() { called <- struct{}{} }) {
					t.Fatal("not watched")
				}
				end(client, served)
				select {
				case <-called:
				case <-time.After(30 * time.Second):
					t.Error("not called")
				}
				served.Close()
				if Await(served, func() {}) {
					t.Error("a closed connection is watched")
				}
				if len(called) != 0 {
					t.Error("called twice")
				}
			})
		}
	}
	l := openLoopback(t, Options{})
	if Await(&net.TCPConn{}, func() {}) || Await(&conn{origin: Origin{Listener: l}}, func() {}) {
		t.Error("a connection of another package or without arrivals is watched")
	}
}
