package console

import "github.com/doorward/doorward/internal/messaging/agent"

// kin is an agent with the agents that it started.
type kin struct {
	agent.PeerInfo
	Away     bool // the agent that started it is not listed
	Children []kin
}

// families returns the agents that started others or were started by one, as a tree: each below
// the agent that started it. If that agent is not listed, it is below its nearest listed
// ancestor. Agents without relations are left out.
func families(peers []agent.PeerInfo) []kin {
	listed := make(map[string]bool, len(peers))
	for _, p := range peers {
		listed[p.PeerID] = true
	}
	below := make(map[string][]kin)
	for _, p := range peers {
		above := nearest(p.Ancestors, listed)
		below[above] = append(below[above], kin{PeerInfo: p, Away: len(p.Ancestors) > 0 && above != p.Ancestors[0]})
	}
	var roots []kin
	for _, k := range below[""] {
		if k = k.with(below); len(k.Children) > 0 || k.Away {
			roots = append(roots, k)
		}
	}
	return roots
}

// nearest returns the first listed ancestor; empty: none.
func nearest(ancestors []string, listed map[string]bool) string {
	for _, a := range ancestors {
		if listed[a] {
			return a
		}
	}
	return ""
}

// with adds the agents below k, and those below them.
func (k kin) with(below map[string][]kin) kin {
	for _, child := range below[k.PeerID] {
		k.Children = append(k.Children, child.with(below))
	}
	return k
}
