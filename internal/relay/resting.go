package relay

import (
	"maps"
)

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
