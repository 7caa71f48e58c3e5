package relay

import (
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// Announce tells every listening client to list again. Call it after the policy
// or the servers have changed.
func (r *Relay) Announce() {
	for _, ear := range r.audience.All() {
		for method := range subscribe.ListCapability {
			ear(method)
		}
	}
}

// announce reports a change to a legacy session, on its standalone stream, as its
// initialize promised.
func (d *binding) announce(method string) {
	if d.session.Listening() && (d.session.Server == "" || d.promised(method)) {
		d.session.Notify(method, nil)
	}
}

// promised reports whether a server of the session declares that this list
// may change.
func (d *binding) promised(method string) bool {
	for _, h := range d.all() {
		c := h.link.live.Load()
		if c != nil && c.era == front.Legacy && rawjson.IsTrue(wire.GetPath(c.hello, "capabilities", subscribe.ListCapability[method], "listChanged")) {
			return true
		}
	}
	return false
}

// announce reports a change to a modern subscription, within what it was granted.
func (s *subscription) announce(method string) {
	s.mu.Lock()
	granted := s.granted.Wants(method, nil)
	s.mu.Unlock()
	if granted {
		s.put(upstream.Event{Method: method})
	}
}
