package agent

import (
	"context"
	"errors"
	"testing"

	"github.com/doorward/doorward/internal/messaging/mail"
	spawning "github.com/doorward/doorward/internal/messaging/spawn"
	"github.com/doorward/doorward/internal/trust/principal"
)

// picky is a workshop that refuses every request for seconds.
type picky struct{ *workshop }

func (w picky) Check(p *principal.Principal, r spawning.Request) (mail.SpawnDraft, error) {
	switch {
	case r.MaxSeconds > 0:
		return mail.SpawnDraft{}, &mail.Error{Code: mail.Budget, Err: errors.New("launcher helper allows 10 seconds, not 60")}
	case r.Model != "":
		return mail.SpawnDraft{}, &mail.Error{Code: mail.InvalidArgument, Err: errors.New("it has: small")}
	}
	return w.workshop.Check(p, r)
}

// kidOf starts an agent for lead, and returns it with the id of its spawn.
func kidOf(h *house, lead *agentClient) (*agentClient, string) {
	id := lead.call("spawn", m{"launcher": "helper", "prompt": "x", "name": "kid"}).want("").str("spawn_id")
	return h.open(startedBy(lead, id), "s-kid", false), id
}

func startedBy(lead *agentClient, id string) *principal.Principal {
	return principal.New(principal.Spawn(id), principal.Fact{Name: "scope", Value: "agent", Grade: principal.Verified}).WithLocal().WithParent(lead.who)
}

// A request that asks for more than the launcher allows is refused with the reason. It does
// not end the started agent that asks, whose own budget is not spent.
func TestAnUnfitRequestEndsNobody(t *testing.T) {
	t.Parallel()
	var h *house
	w := &workshop{book: func() *mail.Book { return h.book }, messages: -1}
	h = build(t, plan{spawn: picky{w}})
	lead := h.legacy("lead").registered("lead")
	kid, id := kidOf(h, lead)
	kid.call("register", m{}).want("")
	for _, who := range []*agentClient{lead, kid} {
		for _, c := range []struct {
			args       m
			code, text string
		}{
			{m{"budget": m{"max_seconds": 60}}, mail.Budget, "launcher helper allows 10 seconds, not 60"},
			{m{"model": "large"}, mail.InvalidArgument, "it has: small"},
		} {
			c.args["launcher"], c.args["prompt"] = "helper", "x"
			if r := who.call("spawn", c.args).want(c.code); r.str("error.message") != c.text {
				t.Errorf("%s", r.raw)
			}
		}
	}
	if w.has(&w.over, id) {
		t.Error("the agent is ended")
	}
	kid.call("spawn", m{"launcher": "helper", "prompt": "x"}).want("")
}

// A hook of a started agent is told of the agent's mail, from whichever of its processes it
// comes, and of no other agent's.
func TestAHookOfAStartedAgent(t *testing.T) {
	t.Parallel()
	var h *house
	h = build(t, plan{spawn: &workshop{book: func() *mail.Book { return h.book }, messages: -1}})
	lead := h.legacy("lead").registered("lead")
	kid, id := kidOf(h, lead)
	tells := func(id, process string, want bool) {
		t.Helper()
		got, err := h.s.Hook(context.Background(), startedBy(lead, id), "", []string{process})
		if err != nil || got.Known != want || want && got.Unread != 1 {
			t.Errorf("agent %s below %q: %+v %v; want known %t", id, process, got, err, want)
		}
	}
	tells(id, "boot/lead@1", false)
	kid.call("register", m{}).want("")
	lead.call("send", m{"to": "lead/kid", "body": "x"}).want("")
	for _, process := range []string{"", "boot/elsewhere@1", "boot/lead@1"} {
		tells(id, process, true)
		tells("01ARZ3NDEKTSV4RRFFQ69G5FAV", process, false)
	}
}
