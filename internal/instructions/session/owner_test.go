package session

import (
	"strings"
	"testing"
	"time"
)

func TestATokenOfAnotherInstallationIsRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		token, s := b.issue(ask())
		elsewhere := b.options()
		elsewhere.Dir = t.TempDir()
		other := &bed{t: t, Keeper: b.open(elsewhere)} // the same installation and rows, but other keys
		other.bad(token, owner(), MAC)

		renamed := b.options()
		renamed.Installation = "there" // a state directory that was copied
		other = &bed{t: t, Keeper: b.open(renamed)}
		other.bad(token, owner(), Binding)
		if _, known := other.Find(s.ID); known || len(other.Sessions()) != 0 {
			t.Error("it knows the sessions of another installation")
		}
		theirs, _ := other.issue(ask())
		other.good(theirs, owner())
		b.bad(theirs, owner(), Binding)
		if _, err := other.End(t.Context(), s.ID, ReasonRevoked, said); err != ErrUnknown {
			t.Errorf("it ends the session of another installation: %v", err)
		}
		b.good(token, owner())
		b.pass(100 * Kept) // by their clock
		must(t, upkeep{other.Keeper}.tidy(t.Context()))
		b.pass(-100 * Kept)
		b.restart()
		b.good(token, owner())
	})
}

func TestATokenIsForItsOwner(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		free, _ := b.issue(ask())
		r := ask()
		r.Bind = "boot/5@1"
		bound, _ := b.issue(r)
		with := func(change func(c *Caller)) Caller {
			c := owner()
			change(&c)
			return c
		}
		for what, tc := range map[string]struct {
			c           Caller
			free, bound string
		}{
			"its owner":                         {c: owner()},
			"the bound process itself":          {c: with(func(c *Caller) { c.Processes = []string{"boot/5@1"} })},
			"below it, the rest not known":      {c: with(func(c *Caller) { c.Processes = c.Processes[:2] })},
			"another uid":                       {c: with(func(c *Caller) { c.Principal = "uid:1001" }), free: Binding, bound: Binding},
			"root":                              {c: with(func(c *Caller) { c.Principal = "uid:0" }), free: Binding, bound: Binding},
			"a longer uid":                      {c: with(func(c *Caller) { c.Principal = "uid:10000" }), free: Binding, bound: Binding},
			"no principal":                      {c: with(func(c *Caller) { c.Principal = "" }), free: Binding, bound: Binding},
			"another tree of processes":         {c: with(func(c *Caller) { c.Processes = []string{"boot/9@1", "boot/1@0"} }), bound: Binding},
			"another process with that number":  {c: with(func(c *Caller) { c.Processes = []string{"boot/5@2", "boot/1@0"} }), bound: Binding},
			"one of another boot":               {c: with(func(c *Caller) { c.Processes = []string{"root/5@1", "boot/1@0"} }), bound: Binding},
			"processes that are not known":      {c: with(func(c *Caller) { c.Processes = nil }), bound: Binding},
			"processes of which some are known": {c: with(func(c *Caller) { c.Processes = c.Processes[:1] }), bound: Binding},
			"TCP, holder not looked for":        {c: Caller{}},
			"TCP, other facts do not count":     {c: Caller{Principal: "uid:1001", Processes: []string{"boot/9@1"}}},
			"TCP here, from below the process":  {c: Caller{Held: heldBy(true, "boot/7@1", "boot/5@1", "boot/1@0")}},
			"TCP here, the process itself":      {c: Caller{Held: heldBy(true, "boot/5@1", "boot/1@0")}},
			"TCP here, from elsewhere":          {c: Caller{Held: heldBy(true, "boot/9@1", "boot/1@0")}, bound: Binding},
			"TCP here, by one of that number":   {c: Caller{Held: heldBy(true, "boot/5@2", "boot/1@0")}, bound: Binding},
			"TCP here, no holder found":         {c: Caller{Held: heldBy(true)}, bound: Binding},
			"TCP, holder not known":             {c: Caller{Held: heldBy(false)}},
			"the socket is asked for no holder": {c: with(func(c *Caller) { c.Held = heldBy(true) })},
		} {
			for token, want := range map[string]string{free: tc.free, bound: tc.bound} {
				_, err := b.Check(token, tc.c)
				got := ""
				if err != nil {
					got = err.(*Invalid).Reason
				}
				if got != want {
					t.Errorf("%s, bound %v: %q, want %q", what, token == bound, got, want)
				}
			}
		}
	})
}

func heldBy(told bool, processes ...string) func() ([]string, bool) {
	return func() ([]string, bool) { return processes, told }
}

// The ancestors of a caller are looked up only for a session that is bound to a
// process, and only when the known processes do not decide. The look-up is the most
// expensive part of a check.
func TestAncestorsAreAskedForOnlyForABoundSession(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		free, _ := b.issue(ask())
		r := ask()
		r.Bind = "boot/5@1"
		bound, _ := b.issue(r)
		for what, tc := range map[string]struct {
			c           Caller
			above       []string
			free, bound string
			asked       int // for the bound one
		}{
			"it is the process":         {c: Caller{Unix: true, Principal: "uid:1000", Processes: []string{"boot/5@1"}}},
			"it is below the process":   {c: Caller{Unix: true, Principal: "uid:1000", Processes: []string{"boot/7@1"}}, above: []string{"boot/7@1", "boot/5@1"}, asked: 1},
			"nothing of it is known":    {c: Caller{Unix: true, Principal: "uid:1000"}, above: []string{"boot/7@1", "boot/5@1"}, asked: 1},
			"it is not below it":        {c: Caller{Unix: true, Principal: "uid:1000", Processes: []string{"boot/7@1"}}, above: []string{"boot/7@1", "boot/9@1"}, bound: Binding, asked: 1},
			"nothing is above it":       {c: Caller{Unix: true, Principal: "uid:1000", Processes: []string{"boot/7@1"}}, bound: Binding, asked: 1},
			"it is another uid":         {c: Caller{Unix: true, Principal: "uid:1", Processes: []string{"boot/7@1"}}, above: []string{"boot/5@1"}, free: Binding, bound: Binding},
			"TCP: it is not looked for": {c: Caller{}, above: []string{"boot/9@1"}},
		} {
			for _, complete := range []bool{true, false} {
				asked := 0
				tc.c.Above = func() ([]string, bool) { asked++; return tc.above, complete }
				for token, want := range map[string]string{free: tc.free, bound: tc.bound} {
					asked = 0
					_, err := b.Check(token, tc.c)
					got := ""
					if err != nil {
						got = err.(*Invalid).Reason
					}
					if got != want || token == free && asked > 0 || token == bound && asked != tc.asked {
						t.Errorf("%s, bound %v: %q, want %q; asked %d times", what, token == bound, got, want, asked)
					}
				}
			}
		}
	})
}

// A signing key alone is not enough to forge a token: a signed token needs the secret
// id of a live session, and must agree with that session in every field.
func TestTheKeyAloneOpensNothing(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		r := ask()
		r.Scope, r.TTL = []string{Structural}, time.Hour
		token, s := b.issue(r)
		p, reason := b.ring.Load().read(token)
		same(t, "reason", reason, "")
		forge := func(change func(p *payload)) string {
			q := p
			change(&q)
			text, err := q.write(b.ring.Load().newest())
			must(t, err)
			return text
		}
		same(t, "forged without a change", forge(func(*payload) {}), token)
		for what, tc := range map[string]struct {
			change func(p *payload)
			want   string
		}{
			"another id":           {func(p *payload) { p.SID = newSID() }, Revoked},
			"no id":                {func(p *payload) { p.SID = "" }, Malformed},
			"the public id":        {func(p *payload) { p.SID = s.ID }, Malformed},
			"the id in capitals":   {func(p *payload) { p.SID = strings.ToUpper(p.SID) }, Revoked},
			"another subject":      {func(p *payload) { p.Sub = "uid:0" }, MAC},
			"more scope":           {func(p *payload) { p.Scope = []string{Behavioural, Structural} }, MAC},
			"no scope":             {func(p *payload) { p.Scope = nil }, MAC},
			"a longer life":        {func(p *payload) { p.Exp += 3600 }, MAC},
			"a life without end":   {func(p *payload) { p.Exp = 1 << 40 }, MAC},
			"an earlier beginning": {func(p *payload) { p.Iat-- }, MAC},
			"another binding":      {func(p *payload) { p.Bind = "boot/9@1" }, MAC},
			"another installation": {func(p *payload) { p.Aud = "there" }, Binding},
			"no installation":      {func(p *payload) { p.Aud = "" }, Binding},
		} {
			text := forge(tc.change)
			if text == token && what != "the id in capitals" {
				t.Fatalf("%s: nothing was changed", what)
			}
			if text != token {
				b.bad(text, Caller{}, tc.want)
			}
		}
	})
}
