package front

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/internal/trust/wire"
)

// patient is a request that waits for a number of events.
type patient struct {
	x      *Exchange
	events chan string // each is reported as progress
	left   int
	answer Reply
	over   bool // its context has ended
}

func (p *patient) Await(ctx context.Context) {
	select {
	case <-p.events:
	case <-ctx.Done():
		p.over = true
	}
}

func (p *patient) Go(ctx context.Context) Reply {
	if p.over {
		return Reply{None: true}
	}
	if p.left--; p.left < 0 {
		return p.answer
	}
	p.x.Notify("notifications/progress", []byte(`{}`))
	return Reply{Later: p}
}

// returning is a listener to which connections come back.
type returning struct {
	net.Listener
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *returning) accept() {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return
		}
		l.conns <- c
	}
}

func (l *returning) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *returning) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// ahead is a connection of which some bytes were read.
type ahead struct {
	net.Conn
	r io.Reader
}

func (a ahead) Read(p []byte) (int, error) { return a.r.Read(p) }

type connKey struct{}

// openReturning starts a house whose connections come back if they do.
func openReturning(t *testing.T, back bool) (h *house, handlers func() int) {
	t.Helper()
	return openReturningWith(t, back, Options{}, func(*http.Server) {})
}

// openReturningWith is openReturning with options of the door, and of its server.
func openReturningWith(t *testing.T, back bool, o Options, of func(*http.Server)) (h *house, handlers func() int) {
	t.Helper()
	l := &returning{conns: make(chan net.Conn, 16), done: make(chan struct{})}
	o.HungUp = func(context.Context) func() bool { return func() bool { return false } }
	if back {
		o.Back = func(ctx context.Context) func([]byte) {
			c := ctx.Value(connKey{}).(net.Conn)
			return func(first []byte) {
				c.SetDeadline(time.Time{})
				l.conns <- ahead{c, io.MultiReader(bytes.NewReader(first), c)}
			}
		}
	}
	h = open(t, o)
	running := make(chan struct{}, 100)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		running <- struct{}{}
		defer func() { <-running }()
		h.door.ServeHTTP(w, r)
	}))
	l.Listener = srv.Listener
	srv.Listener = l
	srv.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	go l.accept()
	of(srv.Config)
	srv.Start()
	t.Cleanup(srv.Close)
	h.url = srv.URL
	return h, func() int { return len(running) }
}

// shown is a response as its client sees it.
type shown struct {
	Status int
	Header http.Header
	Length int64
	Coding []string
	Body   string
}

func next(t *testing.T, in *bufio.Reader) shown {
	t.Helper()
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Header.Get("Date") == "" {
		t.Error("an answer without a date")
	}
	resp.Header.Del("Date")
	return shown{resp.StatusCode, resp.Header, resp.ContentLength, resp.TransferEncoding, string(body)}
}

// A request that waits has no handler if its connection can come back. Its answer is the one that
// a handler gives, whatever the form and the end of the wait, and the connection serves the next
// request, also one that came before the answer.
func TestAWaitingRequestIsAnsweredTheSameWithoutItsHandler(t *testing.T) {
	t.Parallel()
	text := Reply{Result: []byte(`{"text":"` + strings.Repeat("x", 100_000) + `"}`)}
	for name, answer := range map[string]Reply{
		"a result": {Result: []byte(`{}`)}, "a large result": text, "a result for this connection": {Result: []byte(`{}`), Transient: true},
		"an error": {Error: &wire.Error{Code: 7, Message: "m"}}, "an error with a status": {Error: &wire.Error{Code: 1503, Message: "m"}, RetryAfter: 3},
		"none": {None: true},
	} {
		for _, accept := range []string{"application/json", "application/json, text/event-stream", "text/event-stream, application/json;q=0.5"} {
			for progress := range 3 {
				for _, first := range []bool{false, true} { // the client is told something before the wait
					t.Run(fmt.Sprint(name, accept, progress, first), func(t *testing.T) {
						t.Parallel()
						kept := waitFor(t, false, accept, progress, first, answer)
						if diff := cmp.Diff(kept, waitFor(t, true, accept, progress, first, answer)); diff != "" {
							t.Error(diff)
						}
					})
				}
			}
		}
	}
}

// waitFor makes a request that waits, and two more on its connection, and returns the answers.
func waitFor(t *testing.T, back bool, accept string, progress int, first bool, a Reply) (got [3]shown) {
	t.Helper()
	h, handlers := openReturning(t, back)
	id := h.session("2025-06-18")
	p := &patient{events: make(chan string), left: progress, answer: a}
	begun := make(chan bool, 1)
	h.serve = func(_ context.Context, x *Exchange) Reply {
		if p.x = x; first {
			x.Notify("notifications/progress", []byte(`{}`))
		}
		begun <- true
		return Reply{Later: p}
	}
	c, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	post := func(body string) string {
		return fmt.Sprintf("POST /mcp/s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: %s\r\nMcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s", accept, id, len(body), body)
	}
	fmt.Fprint(c, post(`{"jsonrpc":"2.0","id":1,"method":"x/y","params":{}}`)+post(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`))
	<-begun
	if back {
		h.eventually("the handler returns", func() bool { return handlers() == 0 })
	} else if handlers() != 1 {
		t.Error("the handler has returned")
	}
	for range progress + 1 {
		p.events <- "now"
	}
	in := bufio.NewReader(c)
	got[0], got[1] = next(t, in), next(t, in)
	fmt.Fprint(c, post(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)) // the id is free again
	got[2] = next(t, in)
	return got
}

// A waiting request without a handler ends with a cancellation, its session and the door, and
// Drain waits for its answer.
func TestAWaitingRequestEndsWithWhatItBelongsTo(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(h *house, id string){
		"its client cancels it": func(h *house, id string) {
			h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, "Mcp-Session-Id", id)
		},
		"its session ends": func(h *house, id string) { h.do("DELETE", "/mcp/s", "", "Mcp-Session-Id", id) },
		"the door closes":  func(h *house, _ string) { h.door.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, handlers := openReturning(t, true)
			id := h.session("2025-06-18")
			begun := make(chan bool, 1)
			h.serve = func(_ context.Context, x *Exchange) Reply {
				begun <- true
				return Reply{Later: &patient{x: x, events: make(chan string)}}
			}
			got := make(chan answer, 1)
			go func() {
				got <- h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":1,"method":"x/y","params":{}}`, "Mcp-Session-Id", id)
			}()
			<-begun
			h.eventually("the handler returns", func() bool { return handlers() == 0 })
			end(h, id)
			h.door.Drain(t.Context())
			if n := h.door.late.Load(); n != 0 {
				t.Errorf("%d requests have no answer after the drain", n)
			}
			want := http.StatusAccepted // a request that its client cancelled has no answer
			if name == "the door closes" {
				want = http.StatusBadGateway
			}
			if a := <-got; a.status != want {
				t.Errorf("status %d, want %d", a.status, want)
			}
		})
	}
}
