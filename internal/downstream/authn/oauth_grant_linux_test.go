package authn

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

func TestAPrincipalHoldsUntilItsLastTokenExpires(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	first := g.mint(t, "exp=10m", "scope=notes")
	p, err := g.present(first)
	if err != nil || !g.Holds(p) {
		t.Fatalf("holds %v, %v", g.Holds(p), err)
	}
	narrow, err := g.present(g.mint(t, "exp=30m"))
	if err != nil {
		t.Fatal(err)
	}
	g.clock.advance(5 * time.Minute)
	if _, err := g.present(g.mint(t, "exp=20m", "scope=notes")); err != nil {
		t.Fatal(err)
	}
	g.clock.advance(6 * time.Minute)
	if _, err := g.present(first); !errors.Is(err, badExpiry) {
		t.Errorf("the first token after its time: %v", err)
	}
	if !g.Holds(p) {
		t.Error("a renewed token does not keep the principal of the first one")
	}
	g.clock.advance(10 * time.Minute)
	if g.Holds(p) || !g.Holds(narrow) {
		t.Errorf("after the last one: %v; a token that proves less: %v", g.Holds(p), g.Holds(narrow))
	}
	if g.Holds(principal.New(p.Name())) {
		t.Error("the name alone holds")
	}
}

func TestRememberedTokensAreBounded(t *testing.T) {
	t.Parallel()
	var v verified
	now := time.Now()
	r := &keyring{prints: map[string]bool{"k": true}}
	for i := range 5 * generation {
		who := principal.New(principal.OAuth("https://i", fmt.Sprint(i)))
		v.put(digestOf(fmt.Sprint(i)), newAccessToken(who, now.Add(time.Duration(i%2)*time.Hour), "k"), now.Add(time.Minute))
	}
	if n := len(v.young) + len(v.old); n > 2*generation {
		t.Errorf("%d tokens", n)
	}
	if last := digestOf(fmt.Sprint(5*generation - 1)); v.get(last) == nil {
		t.Error("the last one is forgotten")
	}
	if v.sweep(now.Add(time.Minute)); len(v.proved) != 5*generation {
		t.Errorf("%d principals after a sweep, want the %d that hold", len(v.proved), 5*generation)
	}
	v.withdraw(r)
	if len(v.proved) == 0 {
		t.Error("a key that is there counts as withdrawn")
	}
	v.withdraw(&keyring{})
	if n := len(v.young) + len(v.old) + len(v.proved); n != 0 {
		t.Errorf("%d are left of a key that was withdrawn", n)
	}
}

func TestTheScopeThatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	covers := func(words ...string) func(*principal.Principal) bool {
		return func(p *principal.Principal) bool {
			for _, w := range words {
				for have := range strings.SplitSeq(value(p, factScope), ",") {
					if have == w {
						return true
					}
				}
			}
			return false
		}
	}
	p, err := g.present(g.mint(t, "scope=notes", "client_id=editor"))
	if err != nil {
		t.Fatal(err)
	}
	for want, allows := range map[string]func(*principal.Principal) bool{
		"look": covers("server:files", "tool:files/read"), "files": covers("server:files"), "boss": covers("admin"),
		"": covers("server:other"),
	} {
		if got := g.oauth.StepUp(p, allows); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	local := func(q *principal.Principal) bool { return q.Local() && value(q, factScope) != value(p, factScope) }
	if got := g.oauth.StepUp(p.WithLocal(), local); got == "" {
		t.Error("a local caller is tried as a remote one")
	}
	if got := g.oauth.StepUp(p, covers("server:notes")); got != "" {
		t.Errorf("no scope would help, and %q is asked for", got)
	}
	same := maps.Collect(func(yield func(string, string) bool) {
		for _, f := range p.Facts() {
			if f.Name != factScope && f.Name != factOAuthScope {
				yield(f.Name, f.Value)
			}
		}
	})
	g.oauth.StepUp(p, func(q *principal.Principal) bool {
		for name, v := range same {
			if value(q, name) != v {
				t.Errorf("%s became %q", name, value(q, name))
			}
		}
		return false
	})
	one, err := g.present(g.mint(t, "aud="+ourURL+"/mcp/notes", "scope=notes"))
	if got := g.oauth.StepUp(one, covers("server:files")); err != nil || got != "" {
		t.Errorf("a token for another server is told to ask for %q, %v", got, err)
	}
	for _, other := range []*principal.Principal{nil, principal.New("token:ci"), principal.New("uid:0")} {
		if got := g.oauth.StepUp(other, func(*principal.Principal) bool { return true }); got != "" {
			t.Errorf("%q is told to ask for %q", other.Name(), got)
		}
	}
	if got := strings.Join(g.oauth.Basic(), " "); got != "files look notes" {
		t.Errorf("to begin with: %q", got)
	}
}

// Many simultaneous connections with one access token are accepted with one fetch of the
// keys.
func TestManyConnectionsWithOneToken(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	token := g.mint(t)
	var wg sync.WaitGroup
	for range burst {
		wg.Go(func() {
			c := enforced()
			for range 50 {
				if got, err := g.ask(c, "Bearer "+token); err != nil || !strings.HasSuffix(got, "#ada") {
					t.Errorf("%q, %v", got, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := g.idp.Hits("/jwks"); n != 1 {
		t.Errorf("the keys were fetched %d times", n)
	}
}

// BenchmarkAccessTokens measures a request with a token that was verified before (known) and
// the verification itself (first). The issuer is not asked.
func BenchmarkAccessTokens(b *testing.B) {
	g := newGuarded(b)
	for name, fields := range map[string][]string{"RS256": nil, "ES256": {"alg=ES256", "key=ec"}, "EdDSA": {"alg=EdDSA", "key=ed"}} {
		token := g.mint(b, append(fields, "scope=notes look", "client_id=editor")...)
		if _, err := g.present(token); err != nil {
			b.Fatal(err)
		}
		b.Run("known/"+name, func(b *testing.B) {
			c, header := enforced(), []string{"Bearer " + token}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.Authenticate(c, header); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("first/"+name, func(b *testing.B) {
			digest, now := digestOf(token), g.clock.Now()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.oauth.verify(token, digest, false, now, true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestAKnownAccessTokenCostsNoAllocation(t *testing.T) {
	g := newGuarded(t)
	c, header := enforced(), []string{"Bearer " + g.mint(t)}
	ask := func() {
		if _, err := g.Authenticate(c, header); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	if n := testing.AllocsPerRun(100, ask); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
