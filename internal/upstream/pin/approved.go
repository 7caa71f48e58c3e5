package pin

import (
	"maps"
	"slices"
	"strings"
)

// Knows reports whether anything of a kind was approved.
func (g *Guard) Knows(k Kind) bool {
	r := g.record
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fault == nil && r.count(k) > 0
}

// Approved returns the approved definitions of a kind that are not withheld now, as a JSON
// array in the form that clients may see, ordered by name. It stands for the list of a server
// that cannot be asked yet. "[]": nothing was approved, the manifest cannot be read, or the
// server's command is withheld.
func (g *Guard) Approved(k Kind) []byte {
	r := g.record
	out := []byte{'['}
	if !g.Knows(k) {
		return append(out, ']')
	}
	items := r.definitions()
	r.mu.Lock()
	defer r.mu.Unlock()
	shown := make(map[string]bool)
	for _, item := range slices.Sorted(maps.Keys(items)) {
		have, ok := r.approved[item]
		if !strings.HasPrefix(item, k.key("")) || !ok || r.open[item] != nil || r.open[itemCommand] != nil {
			continue
		}
		s := look(k, items[item])
		if s.refusal != "" || s.digest != have || shown[s.shown] {
			continue
		}
		shown[s.shown] = true
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, s.clean...)
	}
	return append(out, ']')
}
