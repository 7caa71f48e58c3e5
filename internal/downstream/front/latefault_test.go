package front

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// failing is a request that waits and then panics.
type failing struct{ again chan bool }

func (f failing) Await(context.Context) {}

func (f failing) Go(context.Context) Reply {
	if <-f.again {
		return Reply{Later: f}
	}
	panic("a fault")
}

// A panic after the wait of a request ends its connection and its call, and nothing else: it is
// logged, the id of the request is free, and Drain does not wait for it.
func TestAPanicAfterAWaitEndsItsConnection(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		for rounds := range 3 {
			t.Run(fmt.Sprint(stream, rounds), func(t *testing.T) {
				t.Parallel()
				logged := new(logLines)
				h, handlers := openReturningWith(t, true, Options{}, func(s *http.Server) { s.ErrorLog = log.New(logged, "", 0) })
				id := h.session("2025-06-18")
				f := failing{make(chan bool)}
				h.serve = func(_ context.Context, x *Exchange) Reply {
					if stream {
						x.StartStream()
					}
					return Reply{Later: f}
				}
				c := dialDoor(t, h)
				call := postIn(id, "application/json, text/event-stream", `{"jsonrpc":"2.0","id":1,"method":"x/y","params":{}}`)
				io.WriteString(c, call)
				for range rounds {
					f.again <- true
				}
				h.eventually("the handler returns", func() bool { return handlers() == 0 })
				f.again <- false
				if text, err := io.ReadAll(c); err != nil || strings.Contains(string(text), lastChunk) || !stream && len(text) > 0 {
					t.Errorf("answer %q, %v", text, err)
				}
				goesOn(t, h, logged, call, "failing.Go")
			})
		}
	}
}

// goesOn checks that Drain ends after a panic, that the panic is logged with its place, and that
// the same call is answered again.
func goesOn(t *testing.T, h *house, logged *logLines, call, place string) {
	t.Helper()
	h.door.Drain(t.Context())
	if got := logged.text(); !strings.Contains(got, "a fault") || !strings.Contains(got, place) {
		t.Errorf("logged: %q", got)
	}
	h.serve = func(context.Context, *Exchange) Reply { return Reply{Result: []byte(`{}`)} }
	again := dialDoor(t, h)
	io.WriteString(again, call)
	if got := next(t, bufio.NewReader(again)); !strings.Contains(got.Body, `"result":{}`) {
		t.Errorf("the same id again: %d %q", got.Status, got.Body)
	}
}

// logLines is what was logged.
type logLines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logLines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// dialDoor opens a connection to the door of a house.
func dialDoor(t *testing.T, h *house) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// postIn returns a POST of a session.
func postIn(id, accept, body string) string {
	return fmt.Sprintf("POST /mcp/s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: %s\r\nMcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s", accept, id, len(body), body)
}

// relieving calls a function while net/http is relieved of a connection.
type relieving struct {
	http.ResponseWriter
	during func()
}

func (r relieving) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := r.ResponseWriter.(http.Hijacker).Hijack()
	r.during()
	return c, rw, err
}

func (r relieving) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// lastlySeen is a request whose wait ends at once. It reports whether its client has left.
type lastlySeen struct {
	x    *Exchange
	left chan bool
}

func (l lastlySeen) Await(context.Context) {}

func (l lastlySeen) Go(context.Context) Reply {
	l.left <- l.x.Left()
	return Reply{Result: []byte(`{}`)}
}

// detached makes a request that waits, and calls during while its connection is taken over. It
// returns whether the client counts as one that has left.
func detached(t *testing.T, during func(h *house, leave func())) bool {
	t.Helper()
	h, _ := openReturning(t, true)
	id := h.session("2025-06-18")
	seen := lastlySeen{left: make(chan bool, 1)}
	h.serve = func(_ context.Context, x *Exchange) Reply {
		seen.x = x
		return Reply{Later: seen}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, leave := context.WithCancel(r.Context())
		defer leave()
		h.door.ServeHTTP(relieving{w, func() { during(h, leave) }}, r.WithContext(ctx))
	}))
	srv.Listener.Close()
	srv.Listener = l
	srv.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	srv.Start()
	t.Cleanup(srv.Close)
	h.url = srv.URL
	io.WriteString(dialDoor(t, h), postIn(id, "application/json", `{"jsonrpc":"2.0","id":1,"method":"x/y","params":{}}`))
	return <-seen.left
}

// A request is counted for Drain before net/http stops to count it for Shutdown.
func TestARequestThatWaitsIsAlwaysCounted(t *testing.T) {
	t.Parallel()
	detached(t, func(h *house, _ func()) {
		if n := h.door.late.Load(); n != 1 {
			t.Errorf("%d requests are counted", n)
		}
	})
}

// A client has left if net/http has noticed that before the connection was taken over.
func TestAClientThatLeftBeforeTheWaitHasLeft(t *testing.T) {
	t.Parallel()
	for _, left := range []bool{false, true} {
		if got := detached(t, func(_ *house, leave func()) {
			if left {
				leave()
			}
		}); got != left {
			t.Errorf("left: %v, want %v", got, left)
		}
	}
}

// The timer of a stream may fire while its connection is taken over. The race detector reports if
// the two are not in turns.
func TestAStreamIsTakenOverBetweenTwoKeepAlives(t *testing.T) {
	t.Parallel()
	for range 50 {
		h, _ := openReturning(t, true)
		id := h.session("2025-06-18")
		ticked, s := make(chan bool), lastlySeen{left: make(chan bool, 1)}
		h.serve = func(_ context.Context, x *Exchange) Reply {
			x.StartStream()
			go func() {
				defer close(ticked)
				x.stream.tick()
			}()
			s.x = x
			return Reply{Later: s}
		}
		c := dialDoor(t, h)
		io.WriteString(c, postIn(id, "text/event-stream", `{"jsonrpc":"2.0","id":1,"method":"x/y","params":{}}`))
		if got := next(t, bufio.NewReader(c)); !strings.Contains(got.Body, `"result":{}`) {
			t.Errorf("answer %q", got.Body)
		}
		<-ticked
	}
}
