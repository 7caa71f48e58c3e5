package front

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/base/sse"
)

// oldClient is a client of HTTP+SSE with a small receive buffer: its stream fills the buffer
// until the test reads.
type oldClient struct {
	h      *house
	where  string // the address for POSTs
	events *sse.Reader
	s      *Session
}

func (h *house) oldClient() *oldClient {
	h.t.Helper()
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if tcp, ok := c.(*net.TCPConn); ok {
			err = tcp.SetReadBuffer(256 << 10)
		}
		return c, err
	}
	transport := &http.Transport{DialContext: dial}
	req, _ := http.NewRequestWithContext(h.t.Context(), "GET", h.url+"/sse/s", http.NoBody)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		h.t.Fatal(err)
	}
	late := time.AfterFunc(30*time.Second, func() { resp.Body.Close() }) // ends the wait for a lost answer
	h.t.Cleanup(func() { late.Stop(); resp.Body.Close() })
	c := &oldClient{h: h, events: sse.NewReader(resp.Body, 8<<20)}
	c.where = string(frame(h.t, c.events).Data)
	h.eventually("the session", func() bool { return h.door.Sessions() == 1 })
	c.s = h.door.only(h.t)
	h.do("POST", c.where, hello)
	frame(h.t, c.events)
	return c
}

// ask posts n calls that are answered together, after the Handler has got all of them.
func (c *oldClient) ask(n int, serve func(*Exchange) []byte) {
	c.h.t.Helper()
	var answered atomic.Int32
	release := make(chan struct{})
	c.h.mu.Lock()
	c.h.serve = func(_ context.Context, x *Exchange) Reply {
		<-release
		defer answered.Add(1)
		return Reply{Result: serve(x)}
	}
	c.h.mu.Unlock()
	for i := range n {
		if a := c.h.do("POST", c.where, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"x/y"}`, i)); a.status != http.StatusAccepted {
			c.h.t.Fatalf("%d %s", a.status, a.body)
		}
	}
	c.h.await("x/y", n)
	close(release)
	c.h.eventually("an answer", func() bool { return answered.Load() > 0 })
}

// read reads to the end of the stream, or until n answers and m notices have come.
func (c *oldClient) read(n, m int, pause time.Duration) (answers map[string]int, notices int, err error) {
	answers = make(map[string]int)
	for len(answers) < n || notices < m {
		e, err := c.events.Next()
		if err != nil {
			return answers, notices, err
		}
		if id := rawjson.Get(e.Data, "id"); id != nil {
			answers[string(id)]++
		} else {
			notices++
		}
		time.Sleep(pause)
	}
	return answers, notices, nil
}

// A client of HTTP+SSE that reads gets each answer once, whatever their size and number and
// however late it reads, because the transport has no resumption. The daemon keeps a bounded
// amount meanwhile.
func TestHTTPAndSSELosesNoAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answers, size, notices int
		pause                  time.Duration
	}{
		"six large answers":          {answers: 6, size: 700 << 10},
		"answers larger than a log":  {answers: 4, size: 3 * logBytes},
		"random sizes":               {answers: 24, size: -600 << 10},
		"a client that reads slowly": {answers: 24, size: -600 << 10, pause: 5 * time.Millisecond},
		"more answers than a log":    {answers: logEvents + 44, size: 16 << 10},
		"notices before an answer":   {answers: 3, size: 700 << 10, notices: logEvents + 44},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, Options{CallsPerPrincipal: 1000})
			c := h.oldClient()
			c.ask(tt.answers, func(x *Exchange) []byte {
				for range tt.notices {
					x.Notify("notifications/progress", []byte(`{"progress":1}`))
				}
				size := tt.size
				if size < 0 {
					size = rand.IntN(-size)
				}
				return fmt.Appendf(nil, `"%s"`, strings.Repeat("x", size))
			})
			if kept := c.s.main.bytes(); kept > max(logBytes, tt.size+100) {
				t.Errorf("%d bytes are kept", kept)
			}
			answers, notices, err := c.read(tt.answers, tt.answers*tt.notices, tt.pause)
			if err != nil || len(answers) != tt.answers || notices != tt.answers*tt.notices {
				t.Fatalf("%d of %d answers, %d notices: %v", len(answers), tt.answers, notices, err)
			}
			for id, n := range answers {
				if n != 1 {
					t.Errorf("%d answers to %s", n, id)
				}
			}
		})
	}
}

// A client of HTTP+SSE loses its connection when notifications overflow what is kept for it,
// so that it learns of the loss. The calls that wait to be answered end.
func TestHTTPAndSSEEndsWhereItWouldLoseMessages(t *testing.T) {
	t.Parallel()
	for name, params := range map[string][]byte{
		"many messages":  []byte(`{}`),
		"large messages": fmt.Appendf(nil, `{"x":"%s"}`, bytes.Repeat([]byte("x"), logBytes/4)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, Options{})
			c := h.oldClient()
			const calls = 24
			c.ask(calls, func(*Exchange) []byte { return fmt.Appendf(nil, `"%s"`, strings.Repeat("x", logBytes)) })
			h.eventually("the end of the session", func() bool {
				for range logEvents {
					c.s.Notify("notifications/x", params)
				}
				if kept := c.s.main.bytes(); kept > 5*logBytes {
					t.Fatalf("%d bytes are kept", kept)
				}
				return c.s.Context().Err() != nil
			})
			answers, _, err := c.read(calls, 0, 0)
			if err == nil {
				t.Errorf("%d answers, and the connection is open", len(answers))
			}
			h.eventually("the end of the calls", func() bool {
				c.s.mu.Lock()
				defer c.s.mu.Unlock()
				return len(c.s.calls) == 0
			})
			if n := h.door.Sessions(); n != 0 {
				t.Errorf("%d sessions", n)
			}
		})
	}
}
