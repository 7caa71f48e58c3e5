package signin

import (
	"net/http"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
)

// The token of a machine that is due or has ended is renewed, however young it is. One that is
// young, not due and refused is not: another would be refused too.
func TestAMachinesTokenOfAShortLifeIsRenewed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		renewed, expires time.Duration // from now
		refused          bool
		status, asked    int
	}{
		"it lives 12 s, and is due":   {-9500 * time.Millisecond, 2500 * time.Millisecond, false, 200, 2},
		"it lives 4 s, and is due":    {-3100 * time.Millisecond, 900 * time.Millisecond, false, 200, 2},
		"it lived 8 s, and has ended": {-9 * time.Second, -time.Second, true, 200, 2},
		"it is old, and refused":      {-time.Minute, time.Hour, true, 200, 2},
		"it is young, and refused":    {time.Duration(0), time.Hour, true, 401, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, nil)
			s := p.settings()
			s.Grant, s.ClientID, s.ClientSecret, s.Issuer = GrantMachine, "robot", secret.New("client-canary"), p.URL
			src := newSource(t, s, newStore(t), nil)
			if status, _, err := call(t, src, p.URL+"/mcp"); status != http.StatusOK || err != nil {
				t.Fatalf("the first call: %d %v", status, err)
			}
			e := *src.now.Load()
			e.Renewed, e.Expires = time.Now().Add(c.renewed), time.Now().Add(c.expires)
			src.now.Store(&e)
			if c.refused {
				p.spoil()
			}
			if status, _, err := call(t, src, p.URL+"/mcp"); status != c.status || (err == nil) != (c.status == http.StatusOK) {
				t.Errorf("%d %v", status, err)
			}
			if n := len(p.asked("/token")); n != c.asked {
				t.Errorf("%d token requests instead of %d", n, c.asked)
			}
		})
	}
}
