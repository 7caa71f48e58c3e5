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

// found replaces the findings of one group on one connection; v is nil without a connection.
// It drops the findings of the group that are kept for ended connections. The caller holds
// mu.
func (r *record) found(v *View, group string, withheld []*Withheld) {
	held := make(map[string]*Withheld, len(withheld))
	for _, w := range withheld {
		held[w.Item] = w
	}
	delete(r.views[nil], group)
	r.views[v] = with(r.views[v], group, held)
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
	for _, f := range r.views {
		for item, w := range f[group] {
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
