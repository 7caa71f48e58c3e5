package console

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/agent"
)

// TestEveryAgentIsBelowTheOneThatStartedIt: in generated families without some of their
// members, each agent with kin is shown once, below its nearest ancestor that is there.
// Agents without kin are not shown.
func TestEveryAgentIsBelowTheOneThatStartedIt(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		var all, there []agent.PeerInfo
		for i := range r.IntN(30) {
			p := agent.PeerInfo{PeerID: fmt.Sprint(i)}
			if i > 0 && r.IntN(3) > 0 {
				parent := all[r.IntN(i)]
				p.Ancestors = append([]string{parent.PeerID}, parent.Ancestors...)
			}
			all = append(all, p)
			if r.IntN(4) > 0 {
				there = append(there, p)
			}
		}
		r.Shuffle(len(there), func(i, j int) { there[i], there[j] = there[j], there[i] })
		above := make(map[string]string) // by agent in the tree
		var walk func(string, []kin)
		walk = func(parent string, ks []kin) {
			for _, k := range ks {
				if _, twice := above[k.PeerID]; twice {
					t.Fatalf("seed %d: %s stands twice", seed, k.PeerID)
				}
				above[k.PeerID] = parent
				walk(k.PeerID, k.Children)
			}
		}
		walk("", families(there))
		for _, p := range there {
			want := ""
			for _, a := range p.Ancestors {
				if slices.ContainsFunc(there, func(q agent.PeerInfo) bool { return q.PeerID == a }) {
					want = a
					break
				}
			}
			related := len(p.Ancestors) > 0 || slices.ContainsFunc(there, func(q agent.PeerInfo) bool { return slices.Contains(q.Ancestors, p.PeerID) })
			if got, in := above[p.PeerID]; in != related || got != want {
				t.Fatalf("seed %d: %s with ancestors %v stands below %q (%v), want %q (%v)", seed, p.PeerID, p.Ancestors, got, in, want, related)
			}
		}
	}
}
