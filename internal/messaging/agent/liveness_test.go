package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/principal"
)

func presenceOf(c *agentClient, name string) string {
	l := c.call("list_peers", m{}).want("")
	for i := range l.len("peers") {
		p := l.at("peers").([]any)[i].(map[string]any)
		if p["name"] == name {
			return p["presence"].(string)
		}
	}
	return "unknown"
}

// live reports whether the lease of a peer runs.
func (h *house) live(name string) bool {
	h.t.Helper()
	p, err := h.book.Desk().Find(h.t.Context(), name)
	if err != nil {
		h.t.Fatal(err)
	}
	return p.Live
}

// Signs of life extend a lease, and without them it ends. The next sign makes the peer live
// again under its name.
func TestALeaseLivesFromSignsOfLife(t *testing.T) {
	t.Parallel()
	h := build(t, plan{mail: mail.Limits{Session: 2 * time.Second}})
	a, watcher := h.legacy("a").registered("a"), h.legacy("w").registered("w")
	for range 9 {
		h.pass(500 * time.Millisecond)
		h.s.Seen(a.who, a.session)
		h.s.round(t.Context())
		if !h.live("a") {
			t.Fatal("a session that gives signs of life has no lease")
		}
	}
	h.pass(2 * time.Second)
	await(t, "the end of the lease", func() bool { return !h.live("a") })
	other, _ := process("other")
	h.s.Seen(other, a.session) // of another process: harmless, because it cannot know the digest, which is the key
	h.s.Seen(a.who, "digest-x")
	h.s.Seen(a.who, a.session)
	await(t, "its return", func() bool { return h.live("a") })
	if s := watcher.call("send", m{"to": "a", "body": "x"}).want(""); s.str("deliveries.0.presence") == "gone" {
		t.Errorf("%s", s.raw)
	}
}

func TestTheEndOfAProcessEndsItsLeaseAtOnce(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	for _, c := range []*agentClient{h.legacy("l").registered("l"), h.modern("m").registered("m")} {
		watcher := h.legacy("w" + c.who.Key()[len(c.who.Key())-1:])
		watcher.call("register", m{}).want("")
		c.witness.kill()
		name := c.who.Key()[len(c.who.Key())-1:]
		await(t, "the end of "+name, func() bool { return presenceOf(watcher, name) == "gone" })
	}
}

func TestSessionsAreNamedByTheBestThatIsKnown(t *testing.T) {
	t.Parallel()
	unix, _ := process("p")
	for _, c := range []struct {
		who    *principal.Principal
		digest string
		want   string
	}{
		{unix, "abc", "s:abc"},
		{unix, "", "i:"},
		{principal.New("token:ci", principal.Fact{Name: "token", Value: "t7", Grade: principal.Verified}).WithLocal(), "", "t:t7"},
		{principal.New("token:ci", principal.Fact{Name: "token", Value: "t7", Grade: principal.Claimed}).WithLocal(), "", "p:token:ci"},
		{principal.New("loopback:uid=1000").WithLocal(), "", "p:loopback:uid=1000"},
		{principal.New("uid:1000", principal.Fact{Name: factInstance, Value: "x", Grade: principal.Claimed}), "", "p:uid:1000"},
	} {
		if got := SessionOf(c.who, c.digest); got != c.want && !(c.want == "i:" && len(got) == 34 && got[:2] == "i:") {
			t.Errorf("%s %q: %s", c.who.Name(), c.digest, got)
		}
	}
}

func TestTheGradeFollowsTheKindOfPrincipal(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	for name, want := range map[string]string{"uid:1000": "attested", "token:ci": "verified", "loopback:uid=1000": "observed"} {
		c := h.open(principal.New(name).WithLocal(), "s"+want, false)
		if r := c.call("register", m{}).want(""); r.str("grade") != want || r.str("principal") != name {
			t.Errorf("%s", r.raw)
		}
	}
}

// Unused sessions are forgotten; one with a peer is kept for a day.
func TestTheTableOfSessionsDoesNotGrow(t *testing.T) {
	t.Parallel()
	now := time.Duration(0)
	tab := newSessions("box", false, 90*time.Second)
	tab.clock = func() time.Duration { return now }
	who, _ := process("p")
	bound := tab.of(who, "bound", asCall)
	tab.bind(bound, mail.Peer{ID: "01JC000000000000000000000A"})
	for i := range 100 {
		tab.of(who, string(rune('a'+i)), asCall)
	}
	tab.forget(nil)
	if len(tab.byKey) != 101 {
		t.Errorf("%d sessions", len(tab.byKey))
	}
	now = keptUnbound + time.Minute
	tab.forget(nil)
	if len(tab.byKey) != 1 || len(tab.due()) != 0 {
		t.Errorf("%d sessions, due %v", len(tab.byKey), tab.due())
	}
	tab.seen(who, "bound")
	if due := tab.due(); len(due) != 1 || due[0] != "s:bound" || len(tab.due()) != 0 {
		t.Errorf("due %v", due)
	}
	now += keptBound + time.Minute
	tab.forget(nil)
	if len(tab.byKey) != 0 || len(tab.byID) != 0 {
		t.Errorf("%d sessions", len(tab.byKey))
	}
}

// A session does not keep siblings that have joined it and have ended, and does not stay
// alive through them. A silent sibling is kept as long as the session that it joined.
func TestALeaderForgetsItsSiblings(t *testing.T) {
	t.Parallel()
	now := time.Duration(0)
	tab := newSessions("box", true, 90*time.Second)
	tab.clock = func() time.Duration { return now }
	parent := principal.Fact{Name: factParent, Value: "boot/agent@1", Grade: principal.Observed}
	who, _ := process("first", parent)
	lead := tab.of(who, "first", asBridged)
	tab.bind(lead, mail.Peer{ID: "01JC000000000000000000000A"})
	var last *witness
	for i := range 100 {
		sibling, w := process(fmt.Sprint("sibling", i), parent)
		if tab.of(sibling, fmt.Sprint("s", i), asBridged) != lead {
			t.Fatal("a sibling does not join")
		}
		if last != nil {
			last.kill()
		}
		last = w
		tab.forget(tab.dead())
	}
	if len(tab.byKey) != 2 || len(lead.members) != 1 {
		t.Errorf("%d sessions, %d members, want the first and the last sibling", len(tab.byKey), len(lead.members))
	}
	tab.end(who, "first", false)
	now += keptBound - time.Minute
	tab.forget(tab.dead())
	if len(tab.byKey) != 2 || !lead.lives() {
		t.Errorf("%d sessions while a sibling is silent; the leader lives: %v", len(tab.byKey), lead.lives())
	}
	now += 2 * time.Minute
	tab.forget(tab.dead())
	if len(tab.byKey) != 0 || lead.lives() {
		t.Errorf("%d sessions after a day; the leader lives: %v", len(tab.byKey), lead.lives())
	}
}

func TestTheRateIsSteady(t *testing.T) {
	t.Parallel()
	var p pace
	got := 0
	for range 100 {
		if p.admit(0, 60, 20) == 0 {
			got++
		}
	}
	wait := p.admit(0, 60, 20)
	if got != 20 || wait != time.Second {
		t.Errorf("%d at once, then %v", got, wait)
	}
	if p.admit(time.Second, 60, 20) != 0 || p.admit(time.Second, 60, 20) == 0 {
		t.Error("not one a second after that")
	}
}
