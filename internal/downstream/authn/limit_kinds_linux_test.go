package authn

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// Failures with one kind of token limit only tokens of that kind from the same source, and
// never generated and access tokens, which cannot be guessed.
func TestBadTokensDoNotLimitTokensOfAnotherKind(t *testing.T) {
	t.Parallel()
	jwt := strings.Join([]string{"eyJhbGciOiJSUzI1NiJ9", "e30", "c2lnbmF0dXJl"}, ".")
	bad := map[kind]string{kindChosen: "wrong-%d", kindMade: "dw_wrong-%d", kindAccess: jwt + "%d", kindSession: "dws1.wrong-%d"}
	for form, text := range bad {
		t.Run(fmt.Sprintf(text, 0), func(t *testing.T) {
			t.Parallel()
			g := newGuarded(t)
			made, _ := mustNew(t, g.store, "ci", 0, "")
			g.clock.advance(1100 * 1e6)
			limited := false
			for i := range 2 * burst {
				_, err := g.ask(enforced(), "Bearer "+fmt.Sprintf(text, i))
				limited = limited || errors.Is(err, ErrTooMany)
			}
			if !limited {
				t.Error("guesses are not limited")
			}
			for good, token := range map[kind]string{kindChosen: envToken, kindMade: made, kindAccess: g.mint(t)} {
				_, err := g.ask(enforced(), "Bearer "+token)
				if kept := errors.Is(err, ErrTooMany); kept != (good == form && good != kindMade && good != kindAccess) || !kept && err != nil {
					t.Errorf("a good token of kind %d: %v", good, err)
				}
			}
			if _, err := g.ask(&Caller{Enforce: true, Listener: "l", Remote: addr("192.0.2.7")}, "Bearer "+envToken); err != nil {
				t.Errorf("another source: %v", err)
			}
		})
	}
}

// Each client of a proxy has a limit of failures of its own, by the address that the proxy
// names. That address has no other effect: it makes no caller local and replaces no token.
func TestClientsOfAProxyHaveLimitsOfTheirOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ask := func(client, token string) error {
		from, _ := netip.ParseAddr(client)
		p, err := w.AuthenticateFor(enforced(), from, []string{"Bearer " + token})
		if err == nil && p.Local() {
			t.Errorf("a client of a proxy at %q is local", client)
		}
		return err
	}
	for _, failing := range []string{"198.51.100.1", "2001:db8::1", "127.0.0.1", "::1", "10.0.0.1"} {
		for i := range burst + 1 {
			ask(failing, fmt.Sprint("wrong-", i))
		}
		if err := ask(failing, envToken); !errors.Is(err, ErrTooMany) {
			t.Errorf("the client %s that failed: %v", failing, err)
		}
	}
	if err := ask("2001:db8::2", envToken); !errors.Is(err, ErrTooMany) {
		t.Errorf("another address of the same network: %v", err)
	}
	for _, other := range []string{"198.51.100.2", "2001:db8:0:1::1", "127.0.0.2", ""} {
		if err := ask(other, envToken); err != nil {
			t.Errorf("the client %q: %v", other, err)
		}
	}
	local := &Caller{Enforce: true, Loopback: true, Listener: enforced().Listener, Remote: addr("127.0.0.1")}
	if _, err := w.Authenticate(local, []string{"Bearer " + envToken}); err != nil {
		t.Errorf("a caller on this machine is limited for a client that claims to be on it: %v", err)
	}
	for _, claim := range []string{"127.0.0.1", "::1"} {
		if p, err := w.AuthenticateFor(enforced(), netip.MustParseAddr(claim), nil); err == nil {
			t.Errorf("a client that claims to be %s is %q without a token", claim, p.Name())
		}
	}
}
