package relay

import (
	"maps"
	"slices"
)

// RestartServer ends the connections to one server, and with them its
// processes; they open again at the next need. found: there is such a server.
func (r *Relay) RestartServer(name string) (ended int, found bool) {
	for _, b := range r.table.Load().sorted {
		if b.Name != name || b.Builtin != nil {
			continue
		}
		b.mu.Lock()
		b.prune()
		open := slices.Collect(maps.Keys(b.conns))
		b.mu.Unlock()
		for _, c := range open {
			c.conn.Close()
		}
		return len(open), true
	}
	return 0, false
}
