package authn

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// While all signature checks that a class of sources may run at once are under way, no
// further token of that class is judged; a token that was verified before is accepted
// without waiting, and tokens of the other class are judged.
func TestSignatureChecksAreBoundedAndKnownTokensDoNotWait(t *testing.T) {
	t.Parallel()
	for _, beyond := range []bool{false, true} {
		t.Run(fmt.Sprintf("beyond the limit %t", beyond), func(t *testing.T) {
			t.Parallel()
			g := newGuarded(t)
			known := g.mint(t)
			if _, err := g.present(known); err != nil {
				t.Fatal(err)
			}
			forged := []string{"key=rsa-attacker", "kid=rsa"}
			for range 2 * burst { // the source of present is beyond the limit now
				_, _ = g.present(g.mint(t, forged...))
			}
			from := map[bool]*Caller{true: enforced(), false: enforced()}
			from[false].Remote = addr("192.0.2.77")
			slots := map[bool]chan struct{}{false: g.oauth.turns.within, true: g.oauth.turns.beyond}[beyond]
			for range cap(slots) {
				slots <- struct{}{}
			}

			var ended atomic.Bool
			var all sync.WaitGroup
			for range burst / 2 {
				bad := g.mint(t, forged...)
				all.Go(func() {
					_, err := g.Authenticate(from[beyond], []string{"Bearer " + bad})
					if err == nil || !ended.Load() {
						t.Errorf("beyond the bound a forged token was judged: %v", err)
					}
				})
			}
			for i := range 100 {
				if _, err := g.Authenticate(from[beyond], []string{"Bearer " + known}); err != nil {
					t.Errorf("a known token: %v", err)
				}
				fresh := g.mint(t, fmt.Sprintf("sub=s%d", i))
				if _, err := g.Authenticate(from[!beyond], []string{"Bearer " + fresh}); err != nil {
					t.Errorf("a valid token of the other class: %v", err)
				}
			}
			ended.Store(true)
			for range cap(slots) {
				<-slots
			}
			all.Wait()
			if len(g.oauth.turns.within)+len(g.oauth.turns.beyond) != 0 {
				t.Error("a check did not end its turn")
			}
		})
	}
}
