package authn

import (
	"errors"
	"fmt"
	"testing"
)

// Callers that share a source with a client whose tokens are refused again and again are accepted with tokens that were
// never seen before, at any rate of failures. The failing client learns no more than before: each failure is a 429, and
// none makes the daemon fetch keys.
func TestAValidAccessTokenIsNotLockedOut(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	if _, err := g.present(g.mint(t)); err != nil {
		t.Fatal(err)
	}
	bad := map[string][]string{"expired": {"exp=-1h"}, "for another": {"aud=https://other.example.com"}, "forged": {"key=rsa-attacker", "kid=rsa"},
		"with an unknown key": {"key=rsa-new"}, "changed": {"flip=signature"}}
	fetched := g.idp.Hits("/jwks")
	for what, fields := range bad {
		for range 2 * burst {
			if _, err := g.present(g.mint(t, fields...)); err == nil {
				t.Fatalf("a token that is %s is accepted", what)
			}
		}
		for i := range 3 * burst {
			if _, err := g.present(g.mint(t, fmt.Sprintf("sub=s%d", i))); err != nil {
				t.Fatalf("a valid one beside tokens that are %s: %v", what, err)
			}
		}
		if _, err := g.present(g.mint(t, fields...)); what != "with an unknown key" && !errors.Is(err, ErrTooMany) {
			t.Errorf("after %d tokens that are %s: %v", 2*burst, what, err)
		}
	}
	g.clock.advance(2 * refreshEvery)
	for range 2 * burst { // the time of before is used up
		_, _ = g.present(g.mint(t, bad["forged"]...))
	}
	for range burst {
		if _, err := g.present(g.mint(t, bad["with an unknown key"]...)); !errors.Is(err, ErrTooMany) {
			t.Errorf("an unknown key from a source that failed too often: %v", err)
		}
	}
	if n := g.idp.Hits("/jwks") - fetched; n != 0 {
		t.Errorf("the keys were fetched %d times", n)
	}
}

// TestAValidAccessTokenIsNotLockedOutBeforeTheKeysAreKnown: the first valid token after a start,
// behind bad ones of the same source, has the keys fetched.
func TestAValidAccessTokenIsNotLockedOutBeforeTheKeysAreKnown(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	for range 2 * burst {
		if _, err := g.present(g.mint(t, "aud=https://other.example.com")); err == nil {
			t.Fatal("a token for another server is accepted")
		}
	}
	if _, err := g.present(g.mint(t)); err != nil {
		t.Errorf("the first valid token: %v", err)
	}
	if n := g.idp.Hits("/jwks"); n != 1 {
		t.Errorf("the keys were fetched %d times", n)
	}
}
