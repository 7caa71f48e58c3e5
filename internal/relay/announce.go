package relay

import (
	"sync"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// audience is all clients that listen for changes of lists. They are told when
// the policy or the configuration changes what they may see, which no server
// reports.
type audience struct {
	mu    sync.Mutex
	ears  map[int]func(method string)
	count int
}

// join adds an ear; leave takes it out again.
func (a *audience) join(ear func(method string)) (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ears == nil {
		a.ears = make(map[int]func(string))
	}
	a.count++
	n := a.count
	a.ears[n] = ear
	return func() {
		a.mu.Lock()
		delete(a.ears, n)
		a.mu.Unlock()
	}
}

func (a *audience) all() []func(string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]func(string), 0, len(a.ears))
	for _, ear := range a.ears {
		out = append(out, ear)
	}
	return out
}

// listCapability is the capability that a server declares when it reports changes
// of a list.
var listCapability = map[string]string{toolsChanged: "tools", promptsChanged: "prompts", resourcesChanged: "resources"}

// Announce tells every listening client to list again. Call it after the policy
// or the servers have changed.
func (r *Relay) Announce() {
	for _, ear := range r.audience.all() {
		for method := range listCapability {
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
		if c != nil && c.era == front.Legacy && isTrue(wire.GetPath(c.hello, "capabilities", listCapability[method], "listChanged")) {
			return true
		}
	}
	return false
}

// announce reports a change to a modern subscription, within what it was granted.
func (s *subscription) announce(method string) {
	s.mu.Lock()
	granted := s.granted.wants(method, nil)
	s.mu.Unlock()
	if granted {
		s.put(upstream.Event{Method: method})
	}
}
