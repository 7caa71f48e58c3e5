package front

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/sse"
)

// pipe is the connection of a raw stream on which a write succeeds when the client has read it.
type pipe struct {
	net.Conn
	client net.Conn
	once   sync.Once
	closed chan struct{} // by the door
}

func (p *pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.Conn.Close()
}

// attach gives l such a connection, as a GET without Last-Event-ID does.
func attach(t *testing.T, l *eventLog) (p *pipe, gen uint64) {
	t.Helper()
	server, client := net.Pipe()
	client.SetDeadline(time.Now().Add(10 * time.Second))
	p = &pipe{Conn: server, client: client, closed: make(chan struct{})}
	t.Cleanup(func() { p.Close(); client.Close() })
	gen, ok := l.reserve(false)
	if ok {
		_, ok = l.attachRaw(&rawStream{conn: p}, gen, unsent)
	}
	if !ok {
		t.Fatal("the stream is in use")
	}
	return p, gen
}

// expect reads one message.
func (p *pipe) expect(t *testing.T, want string) {
	t.Helper()
	b := make([]byte, 4096)
	n, err := p.client.Read(b)
	if err != nil || !strings.Contains(string(b[:n]), want) {
		t.Errorf("got %q %v, want %s", b[:n], err, want)
	}
}

// A message that could not be written to the standalone stream is unsent: a client that opens the
// stream again without Last-Event-ID gets it, and none that was written before.
func TestWhatCouldNotBeWrittenIsForTheNextStream(t *testing.T) {
	t.Parallel()
	const all = 4
	for read := range all {
		t.Run(fmt.Sprint(read, " written"), func(t *testing.T) {
			t.Parallel()
			l := newEventLog(0, true)
			first, gen := attach(t, l)
			for i := range all {
				l.put(fmt.Appendf(nil, `{"n":%d}`, i), 0)
			}
			for i := range read {
				first.expect(t, fmt.Sprintf(`{"n":%d}`, i))
			}
			first.client.Close()
			<-first.closed
			l.detach(gen)
			second, _ := attach(t, l)
			for i := read; i < all; i++ {
				second.expect(t, fmt.Sprintf(`{"n":%d}`, i))
			}
		})
	}
}

// reopen opens the standalone stream of a session. Another attempt follows if the stream before it
// has not ended within endTime, as on a busy machine.
func (h *house) reopen(session string) (*http.Response, *sse.Reader) {
	h.t.Helper()
	for range 40 {
		began := time.Now()
		resp, events := h.stream("GET", "/mcp/s", "", "Mcp-Session-Id", session)
		waited := time.Since(began)
		if resp.StatusCode == http.StatusOK {
			return resp, events
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusConflict || waited < endTime {
			h.t.Fatalf("after %s: %s", waited, resp.Status)
		}
	}
	h.t.Fatal("the stream before it does not end")
	return nil, nil
}

// A client that closes its standalone stream can open it again at once, and gets what it has not
// been sent. While the stream is in use another one is refused.
func TestAStreamThatWasJustClosedCanBeOpenedAgain(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	id := h.session("2025-11-25")
	s := h.door.only(t)
	for i := range 20 {
		resp, events := h.reopen(id)
		method := fmt.Sprintf("notifications/n%d", i)
		s.Notify(method, nil)
		if e := frame(t, events); !strings.Contains(string(e.Data), method) {
			t.Errorf("stream %d: %s, want %s", i, e.Data, method)
		}
		if i > 0 {
			resp.Body.Close()
			continue
		}
		if a := h.do("GET", "/mcp/s", "", "Mcp-Session-Id", id); a.status != http.StatusConflict {
			t.Errorf("a second stream: %d", a.status)
		}
		resp.Body.Close()
	}
}
