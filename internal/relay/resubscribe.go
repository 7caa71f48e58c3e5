package relay

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream"
)

// restore subscribes a new connection to the resources that sessions had subscribed to on the
// one before, if policy still lets one of them.
func (h *hub) restore(ctx context.Context, c *liveConn) {
	if h.sessionsAlone(c) {
		h.subscribe(ctx, c, h.allowed())
	}
}

// subscribe subscribes a connection of legacy sessions to resources that they are
// subscribed to, for sideTime at most. What fails is tried again in the background.
func (h *hub) subscribe(ctx context.Context, c *liveConn, uris []string) {
	ctx, cancel := context.WithTimeout(ctx, sideTime)
	defer cancel()
	left := slices.DeleteFunc(uris, func(uri string) bool { return c.subscribes(ctx, uri) })
	if len(left) > 0 {
		go h.subscribeLater(c, left)
	}
}

// subscribeLater goes on with subscribe for about a minute: a server that has just started
// may not have the resources yet. They may have changed before, and the sessions are told so.
func (h *hub) subscribeLater(c *liveConn, uris []string) {
	for pause := firstRetry; len(uris) > 0 && pause < lastRetry; pause *= 2 {
		select {
		case <-time.After(pause):
		case <-c.conn.Done():
			return
		}
		uris = slices.DeleteFunc(uris, func(uri string) bool {
			if !h.watchers.wanted(uri, nil) {
				return true
			}
			ctx, cancel := context.WithTimeout(h.ctx, sideTime)
			defer cancel()
			done := c.subscribes(ctx, uri)
			if done {
				h.publish(upstream.Event{Method: protocol.ResourceUpdated, Params: subscribe.URIParams(uri)})
			}
			return done
		})
	}
	if len(uris) > 0 {
		h.log.Warn("subscriptions were not restored", "server", h.b.Name, "resources", len(uris))
	}
}

// subscribes subscribes a legacy connection to a resource, and reports whether the server has
// accepted that.
func (c *liveConn) subscribes(ctx context.Context, uri string) bool {
	reply, err := c.conn.Call(ctx, &upstream.Request{Method: "resources/subscribe", Params: subscribe.URIParams(uri)}, nil)
	return err == nil && reply.Error == nil
}

// allowed decides and records the subscriptions of each session, and returns the resources
// that one of them may still be subscribed to, in a fixed order.
func (h *hub) allowed() []string {
	uris := make(map[string]bool)
	for w, mine := range h.watchers.subscribed() {
		with := new(gate.Charge)
		for _, uri := range slices.Sorted(maps.Keys(mine)) {
			if w.again(uri, with) {
				uris[uri] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(uris))
}
