package mail

import "slices"

// lineage returns the lineage of one peer as seen from another: that of a parent, seen
// from its child, is "parent". It depends on spawn records only: the ancestors of a peer
// are written when its spawn is entered, parent first, and never change.
func lineage(of, to sender) string {
	switch {
	case of.id == to.id:
		return LineageSelf
	case of.kind == kindOperator:
		return LineageOperator
	case of.kind == kindBroker:
		return LineageBroker
	}
	if i := slices.Index(to.ancestors, of.id); i == 0 {
		return LineageParent
	} else if i > 0 {
		return LineageAncestor
	}
	if i := slices.Index(of.ancestors, to.id); i == 0 {
		return LineageChild
	} else if i > 0 {
		return LineageDescendant
	}
	if len(of.ancestors) > 0 && len(to.ancestors) > 0 && of.ancestors[0] == to.ancestors[0] {
		return LineageSibling
	}
	return LineageUnrelated
}
