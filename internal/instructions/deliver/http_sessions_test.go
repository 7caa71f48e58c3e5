package deliver

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/trust/audit"
)

func TestASessionFromItsBeginToItsEnd(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	var made, again Issued
	var mine own
	lines := d.since(func() {
		d.want(201, "", me, "POST", "/auth/session", `{"client":{"name":"cli","version":"2"},"project":"demo-one","ttl_s":3600}`).into(t, &made)
	})
	if len(lines) != 1 || lines[0].Decision != audit.Allow || lines[0].Action != actionSession || lines[0].Detail["session"] != made.SessionID ||
		lines[0].Detail["scope"] != "behavioural,structural" || lines[0].Detail["project"] != "demo-one" || lines[0].Detail["bind"] != "boot/9@9" {
		t.Errorf("%+v", lines)
	}
	expires, err := time.Parse(time.RFC3339, made.Expires)
	if err != nil || time.Until(expires) > time.Hour+time.Second || time.Until(expires) < 59*time.Minute || !isSession(made.SessionID) || !strings.HasPrefix(made.Token, session.Prefix) {
		t.Errorf("%+v", made)
	}
	s, _ := d.keeper.Find(made.SessionID)
	if s.Client != "cli/2" || s.Project != "demo-one" || s.Bind != "boot/9@9" || s.Subject != "uid:1000" || s.CI {
		t.Errorf("%+v", s)
	}
	r := d.want(200, "", me, "GET", "/auth/session", "", as(made.Token)...)
	if r.into(t, &mine); mine.SessionID != made.SessionID || mine.Subject != "uid:1000" || mine.Project != "demo-one" || len(mine.Revision) != 64 || mine.Expires != made.Expires || len(mine.Scope) != 2 {
		t.Errorf("%+v", mine)
	}
	lines = d.since(func() {
		d.want(201, "", me, "POST", "/auth/session/renew", "", as(made.Token)...).into(t, &again)
	})
	if again.SessionID != made.SessionID || again.Token == made.Token || len(lines) != 1 || lines[0].Resource != "instructions/renew" || lines[0].Detail["session"] != made.SessionID {
		t.Errorf("%+v %+v", again, lines)
	}
	d.want(200, "", me, "GET", "/auth/voice", "", as(made.Token)...) // the old token is good for half a minute more
	lines = d.since(func() { d.want(204, "", me, "DELETE", "/auth/session", "", as(again.Token)...) })
	if len(lines) != 1 || lines[0].Resource != "instructions/end" || lines[0].Detail["session"] != made.SessionID {
		t.Errorf("%+v", lines)
	}
	for _, token := range []string{made.Token, again.Token} {
		d.want(401, "unauthenticated", me, "GET", "/auth/voice", "", as(token)...)
		d.want(401, "unauthenticated", me, "DELETE", "/auth/session", "", as(token)...)
	}
}

func TestASessionIsBoundToTheCallerOrToWhatItNamesAboveIt(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	bindOf := func(id string) string { s, _ := d.keeper.Find(id); return s.Bind }
	token, id := d.openSession(me, "")
	if bindOf(id) != "boot/9@9" {
		t.Errorf("bound to %q", bindOf(id))
	}
	above, aboveID := d.openSession(me, `{"bind":"boot/5@5"}`)
	if bindOf(aboveID) != "boot/5@5" {
		t.Errorf("bound to %q", bindOf(aboveID))
	}
	for _, bind := range []string{"boot/6@6", "boot/5", "5", "boot/5@5 ", "other/5@5", " "} {
		d.want(400, "malformed", me, "POST", "/auth/session", `{"bind":"`+bind+`"}`)
	}
	d.want(400, "malformed", loopback, "POST", "/auth/session", `{"bind":"boot/5@5"}`, as(bearerCI)...)
	sibling := caller{who: "uid:1000", net: "unix", tree: "boot/8@8 boot/5@5 boot/1@1"}
	elsewhere := caller{who: "uid:1000", net: "unix", tree: "boot/7@7 boot/1@1"}
	blind := caller{who: "uid:1000", net: "unix"}
	d.want(401, "unauthenticated", sibling, "GET", "/auth/voice", "", as(token)...)
	d.want(200, "", sibling, "GET", "/auth/voice", "", as(above)...)
	for _, c := range []caller{elsewhere, blind, {who: "uid:1001", net: "unix", tree: me.tree}} {
		d.want(401, "unauthenticated", c, "GET", "/auth/voice", "", as(above)...)
	}
	// The session of a caller whose process is unknown is bound to nothing.
	_, id = d.openSession(blind, "")
	if bindOf(id) != "" {
		t.Errorf("bound to %q", bindOf(id))
	}
	d.want(400, "malformed", blind, "POST", "/auth/session", `{"bind":"boot/5@5"}`)
}

// The ancestors of a caller are looked up only for a session that is bound to one
// of them, and kept for two seconds. The look-up is the most expensive part of a
// request.
func TestACallersAncestorsAreLookedAtWhereASessionIsBoundToThem(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	unbound := d.fullToken()
	var own, above Issued
	d.want(201, "", me, "POST", "/auth/session", "").into(t, &own)
	d.want(201, "", me, "POST", "/auth/session", `{"bind":"boot/5@5"}`).into(t, &above)
	looks := func(token string, by caller) int32 {
		before := d.looks.Load()
		for range 5 {
			d.want(200, "", by, "GET", "/auth/session", "", as(token)...)
		}
		return d.looks.Load() - before
	}
	if n := looks(unbound, me); n != 0 {
		t.Errorf("%d looks for a session that is bound to nothing", n)
	}
	if n := looks(own.Token, me); n != 0 {
		t.Errorf("%d looks for the caller's own", n)
	}
	begun := time.Now()
	if n := looks(above.Token, me); time.Since(begun) < chainKept && n > 1 || n > 5 {
		t.Errorf("%d looks for what is above it", n)
	}
	// The ancestors of one process are not used for another.
	stranger := caller{who: "uid:1000", net: "unix", tree: "boot/6@6 boot/1@1"}
	for range 2 {
		d.want(401, "unauthenticated", stranger, "GET", "/auth/session", "", as(above.Token)...)
	}
	// Ancestors are remembered for two seconds at most.
	d.s.web.chains.keep("boot/9@9", []string{"boot/9@9"}, time.Now().Add(-chainKept))
	if n := looks(above.Token, me); n < 1 {
		t.Error("it is never looked at again")
	}
}

func TestTheNumberOfRememberedCallersIsBounded(t *testing.T) {
	t.Parallel()
	var c chains
	now := time.Now()
	for i := range 3 * chainsMax {
		c.keep(fmt.Sprint(i), []string{"x"}, now)
	}
	if len(c.of) != chainsMax || c.find("0", now) == nil || c.find("0", now.Add(chainKept)) != nil {
		t.Errorf("%d callers are remembered", len(c.of))
	}
	c.keep("late", []string{"x"}, now.Add(chainKept))
	if len(c.of) != 1 {
		t.Errorf("%d callers are remembered after their time", len(c.of))
	}
}

func TestPolicyDecidesSessionsAndTheirScope(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{rules: `@id("ann") permit (principal, action == Action::"instructions.behavioural", resource) when { principal.name == "oauth:https://id.example#ann" };`})
	for _, c := range []struct {
		by      caller
		headers []string
		status  int
		scope   []string
	}{
		{me, nil, 201, []string{"behavioural", "structural"}},
		{me, as(bearerCI), 201, []string{"behavioural", "structural"}}, // on the Unix socket the kernel identifies the caller
		{loopback, as(bearerCI), 201, []string{"structural"}},
		{loopback, as("eyJ.oauth.token"), 201, []string{"behavioural", "structural"}},
		{loopback, as(bearerScoped), 403, nil},
		{loopback, nil, 401, nil},
		{caller{who: "loopback:unknown", net: "tcp"}, nil, 401, nil},
		{caller{who: "uid:1001", net: "unix", tree: me.tree}, nil, 403, nil},
		{caller{who: "spawn:abc", net: "unix", tree: me.tree}, []string{"Authorization", "Bearer dwa_x"}, 403, nil},
	} {
		var made Issued
		r := d.do(c.by, "POST", "/auth/session", "", c.headers...)
		if r.status != c.status {
			t.Errorf("%v %v: %d %s", c.by, c.headers, r.status, r.body)
		}
		if r.status == 201 {
			if r.into(t, &made); !slices.Equal(made.Scope, c.scope) {
				t.Errorf("%v %v: %v", c.by, c.headers, made.Scope)
			}
		}
	}
	d.gate.SetPolicy(d.rules(`@id("guests") permit (principal in Kind::"loopback", action in [Action::"instructions.session", Action::"instructions.structural"], resource);`))
	var made Issued
	d.want(201, "", loopback, "POST", "/auth/session", "").into(t, &made)
	d.want(200, "", loopback, "GET", "/auth/templates/plan", "", as(made.Token)...)
	d.want(401, "unauthenticated", loopback, "GET", "/auth/templates/plan", "")
	// A tier that policy takes away is not given again.
	d.gate.SetPolicy(d.rules(`@id("less") forbid (principal, action == Action::"instructions.behavioural", resource);`))
	full := d.fullToken()
	d.want(403, "not_permitted", me, "POST", "/auth/session/renew", "", as(full)...)
	d.want(201, "", me, "POST", "/auth/session", "").into(t, &made)
	if !slices.Equal(made.Scope, []string{"structural"}) {
		t.Errorf("%v", made.Scope)
	}
	d.want(201, "", me, "POST", "/auth/session/renew", "", as(made.Token)...)
	d.gate.SetPolicy(d.rules(`@id("none") forbid (principal, action in [Action::"instructions.behavioural", Action::"instructions.structural"], resource);`))
	lines := d.since(func() { d.want(403, "not_permitted", me, "POST", "/auth/session", "") })
	if len(lines) != 1 || lines[0].Decision != audit.Deny || lines[0].Rule != ruleScope {
		t.Errorf("%+v", lines)
	}
}

func TestAPrincipalMakesTenSessionsAMinute(t *testing.T) {
	t.Parallel()
	now := time.Now()
	d := openDesk(t, plan{change: func(o *Options) { o.Now = func() time.Time { return now } }})
	for range 10 {
		d.want(201, "", me, "POST", "/auth/session", "")
	}
	lines := d.since(func() {
		r := d.want(429, "rate_limited", me, "POST", "/auth/session", "")
		if wait, err := strconv.Atoi(r.header.Get("Retry-After")); err != nil || wait < 1 || wait > 60 {
			t.Errorf("Retry-After %q", r.header.Get("Retry-After"))
		}
	})
	if len(lines) != 1 || lines[0].Decision != audit.Deny || lines[0].Rule != ruleSessions {
		t.Errorf("%+v", lines)
	}
	d.want(201, "", loopback, "POST", "/auth/session", "", as(bearerCI)...) // another principal has a limit of its own
	d.want(429, "rate_limited", caller{who: "uid:1000", net: "unix", tree: "boot/7@7 boot/1@1"}, "POST", "/auth/session", "")
}

func TestConcurrentRequestsKeepToTheRateOfSessions(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	var made, refused atomic.Int32
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			switch r := d.do(me, "POST", "/auth/session", ""); r.status {
			case 201:
				made.Add(1)
			case 429:
				refused.Add(1)
			}
		})
	}
	all.Wait()
	if made.Load() != 10 || refused.Load() != 20 || d.keeper.Stats().Live != 10 {
		t.Errorf("%d made, %d refused, %d live", made.Load(), refused.Load(), d.keeper.Stats().Live)
	}
}

// No minute, wherever it begins, has more than ten acts of a principal.
func TestNoMinuteHasMoreActsThanItsLimit(t *testing.T) {
	t.Parallel()
	var p pace
	start := time.Unix(1_000_000, 0)
	var done []time.Time
	for i := range 2000 {
		now := start.Add(time.Duration(i) * 700 * time.Millisecond)
		if i%7 == 0 {
			p.take(fmt.Sprint("other", i), now, 10, time.Minute)
		}
		wait := p.take("me", now, 10, time.Minute)
		if wait == 0 {
			done = append(done, now)
		} else if at := now.Add(wait); !at.Equal(done[len(done)-10].Add(time.Minute)) {
			t.Fatalf("to wait for %v", wait)
		}
	}
	for i := 10; i < len(done); i++ {
		if done[i].Sub(done[i-10]) < time.Minute {
			t.Fatalf("%v and ten more until %v", done[i-10], done[i])
		}
	}
	if len(done) < 200 {
		t.Errorf("only %d of 23 minutes", len(done))
	}
	p.take("last", start.Add(time.Hour), 10, time.Minute)
	if len(p.done) != 1 {
		t.Errorf("%d principals are remembered", len(p.done))
	}
}

// The name and version that a client claims are stripped of hidden characters and
// cut to a length.
func TestAClaimIsCleaned(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	for body, want := range map[string]string{
		`{"client":{"name":"a\u001b[31m\u202eb\n","version":"\u200b1"}}`:                                      "a[31mb/1",
		`{"client":{"name":"` + strings.Repeat("x", 200) + `","version":"` + strings.Repeat("y", 200) + `"}}`: strings.Repeat("x", 63) + "/" + strings.Repeat("y", 63),
		`{"client":{}}`: "",
	} {
		_, id := d.openSession(me, body)
		if s, _ := d.keeper.Find(id); s.Client != want {
			t.Errorf("%s: %q", body, s.Client)
		}
	}
}

func TestStatusTellsEachCallerItsState(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{failClosed: true})
	status := func(c caller, headers ...string) (s Status) {
		d.want(200, "", c, "GET", "/auth/status", "", headers...).into(t, &s)
		return s
	}
	if s := status(me); s.State != "refused" || s.Reason != NoToken || s.Revision != "" || !s.FailClosed || s.Store != "ok" {
		t.Errorf("without a token: %+v", s)
	}
	full := d.fullToken()
	if s := status(me, as(full)...); s.State != "full" || s.Reason != "" || len(s.Revision) != 64 || s.SessionID == "" || s.Expires == "" || len(s.Scope) != 2 {
		t.Errorf("with one: %+v", s)
	}
	if s := status(me, as(bearerCI)...); s.State != "full" || !slices.Equal(s.Scope, []string{document.Structural}) || s.SessionID != "" {
		t.Errorf("of a job: %+v", s)
	}
	if s := status(loopback, as(bearerScoped)...); s.State != "refused" || s.Reason != NotPermitted {
		t.Errorf("of one that may nothing: %+v", s)
	}
	lines := d.since(func() { status(me, as(full)...) })
	if len(lines) != 0 {
		t.Errorf("it tells a caller of itself alone, and is recorded: %+v", lines)
	}
}
