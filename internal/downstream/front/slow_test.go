package front

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/sse"
)

// A client that reads its open stream too slowly is told that it has missed messages once it has
// read the others, and only then. It gets what the telling adds, and is not told again for that.
func TestASlowClientLearnsWhatItMissed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ puts, tells int }{
		{1, 1}, {logUnsent, 1}, {logUnsent + 1, 1}, {2 * logUnsent, 1}, {3*logUnsent + 7, 1},
		{logUnsent + 1, logUnsent - 2}, {logUnsent + 1, 3 * logUnsent},
	} {
		t.Run(fmt.Sprintf("%d messages, %d tell", c.puts, c.tells), func(t *testing.T) {
			t.Parallel()
			l := newEventLog(0, true)
			var told atomic.Int32
			p := listenSlowly(t, l, func() {
				told.Add(1)
				for range c.tells {
					l.put([]byte(`{"again":true}`), 0)
				}
				l.put([]byte(`{"told":true}`), 0)
			})
			l.put([]byte(`{"n":0}`), 0)
			h := &house{t: t}
			h.eventually("the first message is being written", func() bool { return l.taken() == 1 })
			for n := range c.puts {
				l.put(fmt.Appendf(nil, `{"n":%d}`, n+1), 0)
			}
			if c.puts > logUnsent {
				p.until(t, `{"told":true}`)
			} else {
				p.until(t, fmt.Sprintf(`{"n":%d}`, c.puts))
			}
			l.put([]byte(`{"last":true}`), 0)
			p.until(t, `{"last":true}`)
			if want := min(1, max(0, c.puts-logUnsent)); int(told.Load()) != want {
				t.Errorf("told %d times, want %d", told.Load(), want)
			}
		})
	}
}

// taken returns the position that the connection was handed.
func (l *eventLog) taken() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pos
}

// slowClient reads a stream only when it is told to.
type slowClient struct{ events *sse.Reader }

func listenSlowly(t *testing.T, l *eventLog, lost func()) slowClient {
	t.Helper()
	server, client := net.Pipe()
	client.SetDeadline(time.Now().Add(time.Minute))
	t.Cleanup(func() { server.Close(); client.Close() })
	gen, _ := l.reserve(false)
	l.attachRaw(&rawStream{conn: server, lost: lost}, gen, unsent)
	return slowClient{sse.NewReader(client, 1<<20)}
}

// until reads events until one has these data.
func (p slowClient) until(t *testing.T, data string) {
	t.Helper()
	for string(frame(t, p.events).Data) != data {
	}
}

// The Handler learns of a gap of a stream that is open.
func TestTheHandlerLearnsOfAGapOfAnOpenStream(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	gaps := make(chan bool, 100)
	h.watch = func(x *Exchange) {
		if x.Method == Listening {
			gaps <- x.Gap
		}
	}
	id := h.session("2025-11-25")
	resp, events := h.stream("GET", "/mcp/s", "", "Mcp-Session-Id", id)
	if resp.StatusCode != http.StatusOK || <-gaps {
		t.Fatalf("%s, or a gap at once", resp.Status)
	}
	s := h.door.only(t)
	params := []byte(`{"data":"` + strings.Repeat("x", 512<<10) + `"}`)
	for range 64 { // more than the buffers of the connection and the log hold
		s.Notify("notifications/message", params)
	}
	go func() {
		for _, err := events.Next(); err == nil; _, err = events.Next() {
		}
	}()
	select {
	case gap := <-gaps:
		if !gap {
			t.Error("the stream was announced again, and no gap")
		}
	case <-time.After(time.Minute):
		t.Error("no gap is known")
	}
}
