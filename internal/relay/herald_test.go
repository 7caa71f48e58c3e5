package relay

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// herald is a built-in server that tells each listen of the changes for its
// delivery session.
type herald struct {
	clerk

	mu   sync.Mutex
	ears map[string]func(upstream.Event) // by delivery session
	asks map[string]string               // what each asked to hear of, raw
}

type heraldDesk struct {
	upstream.Conn
	*herald
}

func (h *herald) Open(who *principal.Principal, session string, modern bool, on func(upstream.Event)) (upstream.Conn, []byte) {
	d, hello := h.clerk.Open(who, session, modern, on)
	return heraldDesk{d, h}, hello
}

func (d heraldDesk) Call(ctx context.Context, r *upstream.Request, on func(upstream.Event)) (upstream.Reply, error) {
	if r.Method != "subscriptions/listen" {
		return d.Conn.Call(ctx, r, on)
	}
	pass, ok := gate.PassOf(ctx)
	if !ok {
		return upstream.Reply{Error: &wire.Error{Code: -32600, Message: "nobody let this in"}}, nil
	}
	id := pass.Act().Delivery
	want := rawjson.Get(r.Params, "notifications")
	d.mu.Lock()
	d.ears[id], d.asks[id] = on, string(want)
	d.mu.Unlock()
	on(upstream.Event{Method: "notifications/subscriptions/acknowledged", Params: rawjson.Set(nil, rawjson.Edit{Key: "notifications", Value: want})})
	<-ctx.Done()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.ears, id)
	return upstream.Reply{}, ctx.Err()
}

func (h *herald) tell(id string, e upstream.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if on := h.ears[id]; on != nil {
		on(e)
	}
}

func (h *herald) asked(id string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asks[id]
}

func (h *herald) listens() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ears)
}

// TestListensOfABuiltInServerAreSeparate: listens of one principal with
// different delivery sessions reach the server as several, each under its own
// pass and with its own filter, on the route and on the aggregate. What the
// server tells one, no other gets.
func TestListensOfABuiltInServerAreSeparate(t *testing.T) {
	t.Parallel()
	for path, uri := range map[string]string{"/mcp/herald": "clerk://%s", "/mcp": "doorward://herald/clerk://%s"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			s := &herald{ears: make(map[string]func(upstream.Event)), asks: make(map[string]string)}
			h := build(t, []Server{{Name: "herald", Kind: KindBuiltin, Builtin: s}})
			ids := []string{"", "d1", "d2"}
			heard := make(map[string]*reply)
			for _, id := range ids {
				m := h.modern(path, "uid:1000")
				if id != "" {
					m.header = []string{"Doorward-Session", id}
				}
				own := fmt.Sprintf(uri, "of-"+id)
				r, ack := m.subscribe(`{"promptsListChanged":true,"resourceSubscriptions":["` + own + `"]}`)
				equal(t, "granted", field(ack, "params", "notifications"), `{"promptsListChanged":true,"resourceSubscriptions":["`+own+`"]}`)
				equal(t, "asked", s.asked(id), `{"promptsListChanged":true,"resourceSubscriptions":["clerk://of-`+id+`"]}`)
				heard[id] = r
			}
			s.tell("d1", upstream.Event{Method: protocol.PromptsChanged})
			for _, id := range ids {
				s.tell(id, upstream.Event{Method: protocol.ResourceUpdated, Params: []byte(`{"uri":"clerk://of-` + id + `"}`)})
			}
			equal(t, "of the first", text(heard["d1"].next(), "method"), protocol.PromptsChanged)
			for _, id := range ids {
				msg := heard[id].next()
				equal(t, "heard by "+id, text(msg, "params", "uri"), fmt.Sprintf(uri, "of-"+id))
				equal(t, "under its own id", subscriptionID(msg), "1")
			}
			for _, r := range heard {
				r.silent()
				r.stop()
			}
			eventually(t, "the listens end", func() bool { return s.listens() == 0 })
		})
	}
}
