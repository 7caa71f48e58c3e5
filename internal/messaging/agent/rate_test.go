package agent

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/test/overload"
)

// The limit of sends belongs to the peer: another session, another name, or a name given back
// and taken again does not reset it.
func TestThePaceOfSendsOutlivesASession(t *testing.T) {
	t.Parallel()
	for what, again := range map[string]func(*house, *agentClient) *agentClient{
		"another session": func(h *house, a *agentClient) *agentClient {
			a.conn.Close()
			return h.legacy("heir").registered("a")
		},
		"another name": func(_ *house, a *agentClient) *agentClient { return a.registered("z") },
		"another name in another session": func(h *house, a *agentClient) *agentClient {
			a.registered("z").conn.Close()
			return h.legacy("heir").registered("z")
		},
		"the name given back": func(h *house, a *agentClient) *agentClient {
			a.call("unregister", m{}).want("")
			return a.registered("z")
		},
		"the name given back, in another session": func(h *house, a *agentClient) *agentClient {
			a.call("unregister", m{}).want("")
			a.conn.Close()
			return h.legacy("heir").registered("a")
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := build(t, plan{limits: Limits{SendsPerMinute: 1, Burst: 3}})
			a := h.legacy("a").registered("a")
			h.legacy("b").registered("b")
			for i := range 3 {
				a.call("send", m{"to": "b", "body": fmt.Sprint(i)}).want("")
			}
			h.s.round(t.Context())
			if r := again(h, a).call("send", m{"to": "b", "body": "x"}).want("RATE_LIMITED"); r.num("error.retry_after_ms") <= 0 {
				t.Errorf("%s", r.raw)
			}
			h.legacy("c").registered("c").call("send", m{"to": "b", "body": "another peer"}).want("")
		})
	}
}

// The refused sends of a superseded session count against its own limit and not against that
// of the session that took over.
func TestASupersededSessionCostsItsHeirNothing(t *testing.T) {
	t.Parallel()
	h := build(t, plan{limits: Limits{SendsPerMinute: 1, Burst: 3}})
	old := h.legacy("old").registered("a")
	h.legacy("b").registered("b")
	old.witness.kill()
	heir := h.legacy("heir").registered("a")
	old.call("send", m{"to": "b", "body": "x"}).want("FENCED")
	for range 2 {
		old.call("send", m{"to": "b", "body": "x"}).want("FENCED")
	}
	old.call("send", m{"to": "b", "body": "x"}).want("RATE_LIMITED")
	heir.call("send", m{"to": "b", "body": "1"}).want("")
	heir.call("send", m{"to": "b", "body": "2"}).want("")
}

// Registrations are limited for each principal, over all of its sessions.
func TestRegisteringHasAPace(t *testing.T) {
	t.Parallel()
	h := build(t, plan{limits: Limits{RegistersPerMinute: 1, RegisterBurst: 3}})
	for i := range 3 {
		h.legacy(fmt.Sprint("s", i)).registered(fmt.Sprint("n", i))
	}
	before := len(h.lines())
	r := h.legacy("late").call("register", m{"name": "late"}).want("RATE_LIMITED")
	if r.at("error.retryable") != true || r.num("error.retry_after_ms") <= 0 || r.num("error.retry_after_ms") > 60000 {
		t.Errorf("%s", r.raw)
	}
	h.open(principal.New(principal.Token("ci")).WithLocal(), "s-ci", false).registered("ci")
	if l := h.lines()[before:]; len(l) != 1 {
		t.Errorf("%+v", l)
	}
	h.s.stopped.flush(farFuture, false)
	l := h.lines()
	if last := l[len(l)-1]; last.Rule != "agent.RATE_LIMITED" || last.Action != "agent.register" || last.Count != 1 {
		t.Errorf("%+v", last)
	}
}

// Two hundred agents of one user can register at once, as after a restart, in five seconds.
func TestTwoHundredAgentsOfOneUserRegisterAtOnce(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	begin := time.Now()
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			c := h.legacy(fmt.Sprint("s", i))
			c.quick = true
			if r := c.call("register", m{"name": fmt.Sprint("n", i)}); r.failed {
				t.Errorf("agent %d: %s", i, r.text)
			}
		})
	}
	wg.Wait()
	if took := time.Since(begin); took > 5*time.Second*slack+overload.Late() {
		t.Errorf("it took %s", took)
	}
}

// Waiting calls do not count against the limit of simultaneous calls of their principal.
func TestWaitsTakeNoPlaceOfCalls(t *testing.T) {
	t.Parallel()
	h := build(t, plan{gate: gate.Limits{Calls: 2}})
	var wg sync.WaitGroup
	for i := range 10 {
		c := h.legacy(fmt.Sprint("s", i)).registered(fmt.Sprint("n", i))
		tool := []string{"wait", "inbox"}[i%2]
		wg.Go(func() { c.call(tool, m{"wait_ms": 30000}).want("") })
		await(t, "the wait", func() bool { return h.s.sessions.waiting() == i+1 })
	}
	last := h.legacy("last").registered("last")
	for i := range 10 {
		last.call("send", m{"to": fmt.Sprint("n", i), "body": "up"}).want("")
	}
	wg.Wait()
	for range 3 {
		last.call("list_peers", m{}).want("")
	}
}

// The number of waiting calls of one principal is bounded over all of its sessions, and does
// not limit another principal.
func TestTheWaitsOfAPrincipalAreBounded(t *testing.T) {
	t.Parallel()
	table := newSessions("box", false, time.Minute)
	for i := range maxWaitingOfAll {
		who, _ := process(fmt.Sprint(i / maxWaiting))
		if _, ok := table.wait(table.of(who, "", asCall), true); !ok {
			t.Fatalf("wait %d was refused", i)
		}
	}
	who, _ := process("one more")
	if _, ok := table.wait(table.of(who, "", asCall), true); ok {
		t.Error("there is no bound")
	}
	other, _ := programOf(principal.UID(1001), "other")
	leave, ok := table.wait(table.of(other, "", asCall), true)
	if !ok {
		t.Fatal("one principal keeps another from waiting")
	}
	leave()
	if n := table.asleep[mail.Qualify("box", principal.UID(1001))]; n != 0 {
		t.Errorf("%d waits are left", n)
	}
}
