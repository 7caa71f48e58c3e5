package pin

import (
	"maps"
	"slices"
	"strings"
)

// findings holds the withheld items of one connection, by group and item. A group is a
// list, or one item that is on none.
type findings map[string]map[string]*Withheld

func with(f findings, group string, held map[string]*Withheld) findings {
	if f == nil {
		f = make(findings)
	}
	f[group] = held
	return f
}

// holders is the set of connections with findings, by group.
type holders map[string]map[*View]bool

// note sets whether a connection has findings of a group.
func (h holders) note(v *View, group string, has bool) {
	of := h[group]
	switch {
	case has && of == nil:
		h[group] = map[*View]bool{v: true}
	case has:
		of[v] = true
	default:
		if delete(of, v); len(of) == 0 {
			delete(h, group)
		}
	}
}

// found replaces the findings of one group on one connection; v is nil without a connection.
// It drops the findings of the group that are kept for ended connections. The caller holds
// mu.
func (r *record) found(v *View, group string, withheld []*Withheld) {
	held := make(map[string]*Withheld, len(withheld))
	for _, w := range withheld {
		held[w.Item] = w
	}
	delete(r.views[nil], group)
	r.holders.note(nil, group, false)
	r.views[v] = with(r.views[v], group, held)
	r.holders.note(v, group, len(held) > 0)
	r.unite(group, held)
	r.publish()
}

// unite sets open to the union of the findings of a group over all connections. If they
// differ for an item, the one in first is used, otherwise the finding in force. The caller
// holds mu and publishes.
func (r *record) unite(group string, first map[string]*Withheld) {
	all := maps.Clone(first)
	if all == nil {
		all = make(map[string]*Withheld)
	}
	for v := range r.holders[group] {
		for item, w := range r.views[v][group] {
			old := r.open[item]
			if all[item] == nil || first[item] == nil && old != nil && old.Digest == w.Digest {
				all[item] = w
			}
		}
	}
	for item := range r.open {
		if strings.HasPrefix(item, group) && all[item] == nil {
			r.release(item)
		}
	}
	for _, item := range slices.Sorted(maps.Keys(all)) {
		r.withhold(all[item])
	}
}

// reconsider updates the findings of all connections after an approval. The caller holds mu
// and publishes.
func (r *record) reconsider() {
	groups := make(map[string]bool)
	for _, f := range r.views {
		for group, held := range f {
			groups[group] = true
			for item, w := range held {
				d, ok := r.approved[r.basis(item)]
				switch {
				case w.Reason == Refused:
				case ok && d.String() == w.Digest:
					delete(held, item)
				case ok:
					next := *w
					next.Reason = Changed
					held[item] = &next
				}
			}
		}
	}
	for group := range groups {
		r.unite(group, nil)
	}
}
