package authn

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/overload"
)

// later advances the clock until the issuer may be asked again after any failure.
func (g *guarded) later() { g.clock.advance(lastRetry) }

func TestMetadataIsLookedForWhereTheStandardsSay(t *testing.T) {
	t.Parallel()
	for issuer, want := range map[string][]string{
		"https://id.example.com":        {"https://id.example.com/.well-known/oauth-authorization-server", "https://id.example.com/.well-known/openid-configuration"},
		"https://id.example.com/":       {"https://id.example.com/.well-known/oauth-authorization-server", "https://id.example.com/.well-known/openid-configuration"},
		"https://id.example.com:8/a/b":  {"https://id.example.com:8/.well-known/oauth-authorization-server/a/b", "https://id.example.com:8/.well-known/openid-configuration/a/b", "https://id.example.com:8/a/b/.well-known/openid-configuration"},
		"https://id.example.com/realm/": {"https://id.example.com/.well-known/oauth-authorization-server/realm", "https://id.example.com/.well-known/openid-configuration/realm", "https://id.example.com/realm/.well-known/openid-configuration"},
	} {
		if got := wellKnown(issuer); !slices.Equal(got, want) {
			t.Errorf("%s: %v", issuer, got)
		}
	}
	g := newGuarded(t)
	for _, mode := range []string{"rfc8414", "good", "html", "rfc8414"} {
		g.idp.Set(mode)
		g.later()
		if _, err := g.present(g.mint(t, "exp=", fmt.Sprintf("exp=%s", 24*time.Hour))); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		g.begin(t, secret.New(envToken))
	}
}

// Metadata and keys are refused unless they name the issuer itself, use https without
// redirects and are small enough. The operator gets one line for each problem and for its end.
func TestInvalidDocumentsOfAnIssuerAreRefused(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	token := g.mint(t)
	for mode, why := range map[string]string{
		"other-issuer": "it names another issuer, \"https://other.example.com\"", "http-jwks": "its jwks_uri is not an https address",
		"no-jwks": "it names no jwks_uri", "redirect": "a redirect, which is not followed", "redirect-jwks": "jwks_uri: a redirect, which is not followed",
		"huge": "longer than 512 KiB", "huge-jwks": "longer than 512 KiB", "broken-jwks": "the key set is not readable", "failing": "status 500", "down": "EOF",
	} {
		g.begin(t, secret.New(envToken))
		g.idp.Set(mode)
		if p, err := g.present(token); err != ErrUnverifiable {
			t.Errorf("%s: %q, %v", mode, p.Name(), err)
		}
		if got := g.heard(); !strings.Contains(got, why) || strings.Contains(got, "\n") || strings.Contains(got, token[:20]) {
			t.Errorf("%s: the operator heard %q, want one line with %q", mode, got, why)
		}
		g.idp.Set("good")
		g.later()
		if _, err := g.present(token); err != nil {
			t.Errorf("after %s: %v", mode, err)
		}
		if got := g.heard(); !strings.Contains(got, "are available again") {
			t.Errorf("after %s the operator heard %q", mode, got)
		}
		token = g.mint(t, "exp="+time.Until(g.clock.Now().Add(time.Hour)).String())
	}
	if n := g.idp.Hits("/moved") + g.idp.Hits("/jwks-moved"); n != 0 {
		t.Errorf("redirects were followed %d times", n)
	}
}

func TestKeyAddressesInATokenAreNotFetched(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	attacker, err := http.NewRequest(http.MethodGet, g.idp.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	lure := "https://" + attacker.URL.Host + "/lure"
	for _, field := range []string{"jku=" + lure, "x5u=" + lure, "jwk=rsa-attacker"} {
		if _, err := g.presentAnew(g.mint(t, "key=rsa-attacker", field)); !errors.Is(err, badKey) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if n := g.idp.Hits("/lure"); n != 0 {
		t.Errorf("an address inside a token was asked %d times", n)
	}
}

func TestKeysAreRotatedAndWithdrawn(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	old := g.mint(t, "exp=3h", "sub=old")
	p, err := g.present(old)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.idp.Publish("rsa-2"); err != nil {
		t.Fatal(err)
	}
	// The keys were fetched a moment ago, so it is not known whether the key exists.
	fresh := g.mint(t, "key=rsa-2", "exp=3h")
	if _, err := g.present(fresh); err != ErrUnverifiable {
		t.Errorf("a key of just now: %v", err)
	}
	g.clock.advance(refreshEvery)
	if _, err := g.present(fresh); err != nil {
		t.Errorf("a new key: %v", err)
	}
	if _, err := g.present(old); err != nil || !g.Holds(p) {
		t.Errorf("the old key, which is still there: %v", err)
	}
	g.idp.Withdraw("rsa")
	g.clock.advance(freshKeys + time.Second)
	if _, err := g.present(fresh); err != nil { // begins the fetch of the keys
		t.Errorf("the new key: %v", err)
	}
	doortest.Until(t, 20*time.Second, "the old key is refused", func() bool { _, err = g.present(old); return err != nil })
	if !errors.Is(err, badKey) && err != ErrUnverifiable {
		t.Errorf("a token of a key that was withdrawn: %v", err)
	}
	if g.Holds(p) {
		t.Error("the principal of the withdrawn key still holds")
	}
	if _, err := g.present(fresh); err != nil {
		t.Errorf("the other key: %v", err)
	}
}

func TestUnknownKeysDoNotSetTheRateOfFetches(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	if _, err := g.present(g.mint(t)); err != nil {
		t.Fatal(err)
	}
	before := g.idp.Hits("/jwks")
	tokens := make([]string, 200)
	for i := range tokens {
		tokens[i] = g.mint(t, fmt.Sprintf("kid=random-%d", i))
	}
	for round := range 3 {
		g.clock.advance(refreshEvery)
		var wg sync.WaitGroup
		for i, token := range tokens {
			wg.Go(func() {
				c := enforced()
				c.Remote = addr(fmt.Sprintf("203.0.%d.%d", round, i))
				if p, err := g.Authenticate(c, []string{"Bearer " + token}); !errors.Is(err, badKey) && err != ErrUnverifiable {
					t.Errorf("%q, %v", p.Name(), err)
				}
			})
		}
		wg.Wait()
	}
	if n := g.idp.Hits("/jwks") - before; n != 3 {
		t.Errorf("%d tokens with unknown keys in three times %s: %d fetches of the keys", 3*len(tokens), refreshEvery, n)
	}
	for _, fields := range [][]string{{"iss=https://x"}, {"aud=https://x"}, {"exp=-1h"}, {"alg=none"}, {"alg=HS256"}} {
		g.clock.advance(refreshEvery)
		_, _ = g.present(g.mint(t, append(fields, "kid=other")...)) // refused, as other tests show
	}
	if n := g.idp.Hits("/jwks") - before; n != 3 {
		t.Errorf("tokens for another audience caused %d fetches", n-3)
	}
}

func TestKnownKeysAreUsedWhileTheIssuerIsDown(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	long := "exp=72h"
	token := g.mint(t, long)
	p, err := g.present(token)
	if err != nil {
		t.Fatal(err)
	}
	g.idp.Set("down")
	for _, after := range []time.Duration{time.Second, time.Hour, 22 * time.Hour} {
		g.clock.advance(after)
		for _, tok := range []string{token, g.mint(t, long)} {
			if _, err := g.present(tok); err != nil {
				t.Errorf("down for %s: %v", after, err)
			}
		}
		if _, err := g.present(g.mint(t, long, "key=rsa-new")); err != ErrUnverifiable {
			t.Errorf("an unknown key, down for %s: %v", after, err)
		}
		if _, err := g.present(g.mint(t, long, "flip=signature")); !errors.Is(err, badSignature) {
			t.Errorf("a wrong signature, down for %s: %v", after, err)
		}
	}
	g.clock.advance(2 * time.Hour)
	if _, err := g.present(token); err != ErrUnverifiable || g.Holds(p) {
		t.Errorf("keys of yesterday: %v, holds %v", err, g.Holds(p))
	}
	g.idp.Set("good")
	g.later()
	if _, err := g.present(token); err != nil {
		t.Errorf("back: %v", err)
	}
}

func TestAnIssuerThatFailsIsAskedLessAndLess(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.idp.Set("failing")
	token := g.mint(t, "exp=24h")
	for range 600 { // ten minutes
		if _, err := g.present(token); err != ErrUnverifiable {
			t.Fatal(err)
		}
		g.clock.advance(time.Second)
	}
	// After 1, 2, 4, 8, 16, 32 seconds and then each minute.
	if n := g.idp.Hits("/realm"); n < 12 || n > 18 {
		t.Errorf("asked %d times in ten minutes", n)
	}
	if got := g.heard(); strings.Count(got, "\n") != 0 || got == "" {
		t.Errorf("the operator heard %q, want it once", got)
	}
	if len(g.failures.buckets) != 0 {
		t.Error("the issuer's failure counts against the caller")
	}
}

func TestACallerDoesNotWaitForASlowIssuer(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.oauth.issuer.waits = 100 * time.Millisecond
	g.idp.Set("slow")
	start := time.Now()
	if _, err := g.present(g.mint(t)); err != ErrUnverifiable || time.Since(start) > 3*time.Second+overload.Late() {
		t.Errorf("after %s: %v", time.Since(start), err)
	}
	g.oauth.Close() // as the daemon does when it ends; it ends the fetch
	doortest.Until(t, 20*time.Second, "the end of the fetch", func() bool {
		g.oauth.issuer.mu.Lock()
		defer g.oauth.issuer.mu.Unlock()
		return g.oauth.issuer.flight == nil
	})
}

func TestAKeySetWithoutUsableKeysAcceptsNoToken(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	for _, id := range []string{"rsa", "ec", "ed"} {
		g.idp.Withdraw(id)
	}
	if _, err := g.present(g.mint(t)); !errors.Is(err, badKey) {
		t.Error(err)
	}
	if got := g.heard(); !strings.Contains(got, "no key that may sign access tokens") {
		t.Errorf("the operator heard %q", got)
	}
}

func TestKeysOfOddFormsAreNotUsed(t *testing.T) {
	t.Parallel()
	const x = `"x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"`
	for text, want := range map[string]int{
		`{"keys":[{"kty":"OKP","crv":"Ed25519",` + x + `}]}`:                           1,
		`{"keys":[{"kty":"OKP","crv":"Ed25519","use":"sig","alg":"EdDSA",` + x + `}]}`: 1,
		`{"keys":[{"kty":"OKP","crv":"Ed25519","key_ops":["verify"],` + x + `}]}`:      1,
		`{"keys":[{"kty":"OKP","crv":"Ed25519","use":"enc",` + x + `}]}`:               0,
		`{"keys":[{"kty":"OKP","crv":"Ed25519","key_ops":["sign"],` + x + `}]}`:        0,
		`{"keys":[{"kty":"OKP","crv":"Ed25519","alg":"RS256",` + x + `}]}`:             0,
		`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AAAA"}]}`:                          0,
		`{"keys":[{"kty":"OKP","crv":"X25519",` + x + `}]}`:                            0,
		`{"keys":[{"kty":"OKP","crv":"Ed25519","kty":"oct",` + x + `}]}`:               0,
		`{"keys":[{"kty":"oct","k":"c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"}]}`:          0,
		`{"keys":[{"kty":"EC","crv":"P-256","x":"AQ","y":"AQ"}]}`:                      0,
		`{"keys":[{"kty":"RSA","e":"AQAB","n":"` + strings.Repeat("_", 171) + `"}]}`:   0, // 1024 bits
		`{"keys":[{"kty":"RSA","e":"AQ","n":"` + strings.Repeat("_", 342) + `"}]}`:     0, // e=1
		`{"keys":[{"kty":"RSA","e":"AQAB","n":"` + strings.Repeat("_", 342) + `"}]}`:   1,
		`{"keys":[{"kty":"RSA","e":"AQAB","n":"` + strings.Repeat("_", 4000) + `"}]}`:  0,
		`{"keys":[]}`: 0, `{"keys":[1,"a",null,{}]}`: 0,
		`{}`: -1, `{"keys":{}}`: -1, `{"keys":[]} x`: -1, `[]`: -1, ``: -1, `{"keys":[],"keys":[]}`: -1,
		`{"keys":[` + strings.Repeat("{},", maxKeys) + `{}]}`: -1,
	} {
		r, err := parseKeys([]byte(text), time.Now())
		if (err != nil) != (want < 0) || err == nil && len(r.keys) != want {
			t.Errorf("%.120s: %+v, %v", text, r, err)
		}
	}
}
