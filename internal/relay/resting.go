package relay

import (
	"maps"
	"time"
)

// rest takes the links from sessions that have had neither a call nor an open stream
// since before: their clients are gone, or pause. What such a session set up with its
// servers is set up again when it comes back.
func (r *Relay) rest(before time.Time) {
	r.bindings.Range(func(k, _ any) bool {
		d := k.(*binding)
		if since, idle := d.session.IdleSince(); idle && since.Before(before) {
			d.rest()
		}
		return true
	})
}

// rest lets go of every link of the session. One that carries a call stays.
func (d *binding) rest() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for b, h := range d.links {
		if h.link.calls.Load() > 0 && h.link.private() {
			continue
		}
		if uris := h.subscribed(); len(uris) > 0 {
			d.keep(b.Name, maps.Keys(uris))
		}
		h.close()
		delete(d.links, b)
	}
}

// subscribed are the resources that the session is subscribed to.
func (h *held) subscribed() (uris map[string]bool) {
	h.link.hub.adjust(h.watcher, func(w *watcher) { uris = w.want.URIs })
	return uris
}
