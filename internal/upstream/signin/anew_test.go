package signin

import (
	"testing"
	"time"
)

// A running daemon stops using the account of an earlier sign-in within seconds of a new one, whatever is left of the
// new token's life: it renews the new sign-in.
func TestANewSignInIsUsedWhateverItsTokensLife(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]time.Duration{
		"an hour": time.Hour, "less than the leeway": leeway / 2, "a second": time.Second, "none": -time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, nil)
			store := newStore(t)
			mustLogin(t, store, p.settings())
			src := newSource(t, p.settings(), store, nil)
			first, _ := src.Authorize(t.Context())
			mustLogin(t, store, p.settings())
			e, _ := store.find("docs", src.target.resource)
			e.Renewed, e.Expires = time.Now().Add(-time.Hour), time.Now().Add(left)
			if err := store.write(e); err != nil {
				t.Fatal(err)
			}
			src.looked.Store(0) // some seconds later
			second, err := src.Authorize(t.Context())
			now, _ := store.find("docs", src.target.resource)
			if second == first || second != "Bearer "+now.Access || !now.Signed.Equal(e.Signed) || err != nil {
				t.Errorf("the earlier sign-in is used: %v, %v", second == first, err)
			}
		})
	}
}
