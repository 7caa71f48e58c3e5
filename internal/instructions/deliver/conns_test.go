package deliver

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream"
)

func TestSubscriptionsAreBoundedAndSayNothing(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	c := h.legacy("a", h.partly())
	for _, name := range []string{"plan", "judge", "nothing"} {
		if r := c.ask("resources/subscribe", m{"uri": "instr://templates/" + name}); string(r.Result) != "{}" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := c.ask("resources/subscribe", m{"uri": "agent://inbox"}); r.Error != errNoURI {
		t.Errorf("%+v", r)
	}
	for i := range urisKept {
		c.ask("resources/subscribe", m{"uri": fmt.Sprintf("instr://templates/x%d", i)})
	}
	if r := c.ask("resources/subscribe", m{"uri": "instr://session"}); r.Error != errTooMany {
		t.Errorf("%+v", r)
	}
	c.ask("resources/unsubscribe", m{"uri": "instr://templates/judge"})
	if r := c.ask("resources/subscribe", m{"uri": "instr://session"}); r.Error != nil {
		t.Errorf("%+v", r)
	}
	if r := c.ask("subscriptions/listen", m{}); r.Error == nil {
		t.Error("a legacy session may listen as a modern one")
	}
}

// TestAConnectionThatIsOverIsForgotten: a closed connection ends its listens, is
// no longer known and answers no request.
func TestAConnectionThatIsOverIsForgotten(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	c := h.modern("a", h.full())
	l := c.hear(t)
	c.conn.Close()
	if r := <-l.done; string(rawjson.Get(r.Result, "resultType")) != `"complete"` {
		t.Errorf("%+v", r)
	}
	if len(h.s.conns.all()) != 0 || c.conn.Err() == nil {
		t.Error("it is still known")
	}
	if _, err := c.conn.Call(context.Background(), &upstream.Request{Method: "ping"}, nil); err == nil {
		t.Error("it answers")
	}
	d := h.modern("b", "")
	h.s.Close()
	select {
	case <-d.conn.Done():
	case <-time.After(20 * time.Second):
		t.Error("a connection outlives the server")
	}
}

// TestManyAtOnce: concurrent deliveries, changes, ends and listens leave no reader
// of an ended session in the cache.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, id := h.issue("uid:1000", document.Behavioural, document.Structural)
				c := h.modern(fmt.Sprint("m", i, n), id)
				c.greeting("initialize")
				events, leave := h.s.Hears(h.reader(id))
				c.ask("tools/call", m{"name": "read", "arguments": m{}})
				h.end(id)
				for range events {
				}
				leave()
				c.conn.Close()
			}
		})
	}
	all.Go(func() {
		for n := range 20 {
			h.file("judge", "class: instructions", fmt.Sprintf("Judgement %d.", n))
			h.look()
			h.s.Policy()
			h.s.sweep()
			h.s.Outgoing(gate.Act{Who: program("x"), Server: "notes"}, []byte(`{"x":"dwi-aaaaaaaaaaaaaaaa"}`))
		}
		cancel()
	})
	all.Wait()
	h.s.readers.cache.mu.Lock()
	defer h.s.readers.cache.mu.Unlock()
	if n := len(h.s.readers.cache.held); n != 0 {
		t.Errorf("%d readers are kept of sessions that are over", n)
	}
}
