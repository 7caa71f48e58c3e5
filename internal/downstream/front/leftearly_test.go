package front

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/test/doortest"
)

// greeting is a Handler whose answer to initialize comes when the session has ended.
type greeting struct {
	*house
	reply  Reply
	begun  chan *Session
	closed atomic.Int32
}

func (g *greeting) Request(ctx context.Context, x *Exchange) Reply {
	if x.Method != "initialize" {
		return g.house.Request(ctx, x)
	}
	x.Session.Attached(func() Attachment { return g })
	g.begun <- x.Session
	<-ctx.Done()
	return g.reply
}

func (g *greeting) Close() { g.closed.Add(1) }

// A client that leaves before its initialize is answered leaves no session, whatever the Handler
// answers: no client knows its id, and a server process of its own would stay for it.
func TestAClientThatLeavesDuringInitializeLeavesNoSession(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]Reply{
		"none":    {None: true},
		"refused": {Error: errNoSuchMethod},
		"late":    {Result: []byte(`{"protocolVersion":"2025-11-25"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, Options{})
			g := &greeting{house: h, reply: reply, begun: make(chan *Session)}
			h.door.o.Handler = g
			ctx, leave := context.WithCancel(t.Context())
			req, _ := http.NewRequestWithContext(ctx, "POST", h.url+"/mcp/s", strings.NewReader(hello))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json, text/event-stream")
			go func() {
				if resp, err := doortest.Client().Do(req); err == nil {
					resp.Body.Close()
				}
			}()
			s := <-g.begun
			leave()
			h.eventually("the session is closed", func() bool { return g.closed.Load() == 1 && h.door.sessions.count() == 0 })
			if h.door.sessions.has(s.id) {
				t.Error("the session is known")
			}
		})
	}
}
