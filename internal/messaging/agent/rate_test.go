package agent

import (
	"fmt"
	"testing"

	"github.com/doorward/doorward/internal/trust/principal"
)

// The pace of sends is the peer's: another session of it, another name, or the
// same name given back and taken again, is no new beginning.
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

// A session that was superseded is held to its own pace, not to its heir's.
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

// Registering has a pace too, of the principal: however many sessions it opens.
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
	if l := (Limits{}).withDefaults(); l.RegistersPerMinute != 30 || l.RegisterBurst != 20 {
		t.Errorf("%+v", l)
	}
}
