package signin

import (
	"net/http"
	"testing"
	"time"
)

// A token is renewed without a person, however its times stand to the clock: refused after the
// clock was set back, or due while it is as young as one that was just renewed.
func TestRenewalAtOddTimes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		renewed, expires time.Duration // from now
		refused          bool
	}{
		"the clock was 2 h ahead":       {2 * time.Hour, 3 * time.Hour, true},
		"the clock was 1 s ahead":       {time.Second, time.Hour, true},
		"it lives 12 s, and is due":     {-9500 * time.Millisecond, 2500 * time.Millisecond, false},
		"it lives 4 s, and is due":      {-3100 * time.Millisecond, 900 * time.Millisecond, false},
		"it lives 12 s, due and spoilt": {-9500 * time.Millisecond, 2500 * time.Millisecond, true},
		"it is old":                     {-time.Minute, time.Hour, true},
		"it has ended":                  {-time.Hour, -time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, nil)
			store := newStore(t)
			mustLogin(t, store, p.settings())
			e, _ := store.find("docs", storedURL(t, store))
			e.Renewed, e.Expires = time.Now().Add(c.renewed), time.Now().Add(c.expires)
			if err := store.write(e); err != nil {
				t.Fatal(err)
			}
			if c.refused {
				p.spoil()
			}
			src := newSource(t, p.settings(), store, nil)
			if status, _, err := call(t, src, p.URL+"/mcp"); status != http.StatusOK || err != nil {
				t.Errorf("%d %v", status, err)
			}
			if n := len(p.asked("/token")); n != 2 {
				t.Errorf("%d token requests for a sign-in and a renewal", n)
			}
		})
	}
}
