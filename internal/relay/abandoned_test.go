package relay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/doorward/doorward/internal/trust/policy"
)

// On a process that sessions share, a question that comes while only abandoned calls run reaches
// no session, in whatever order clients begin calls and leave them, and the server answers. It
// is refused and recorded. Once the server has answered them all, the only session is asked again.
func TestAQuestionOfAnAbandonedCallReachesNoOtherSession(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			p := newDeserted(t)
			for r := rand.New(rand.NewPCG(seed, 0)); p.asked < 4; {
				p.step(r)
			}
			for len(p.flying) > 0 {
				p.leaves(0, p.asked%2 == 0)
			}
			for len(p.left) > 0 {
				p.answersLate(0)
			}
			for _, c := range p.others {
				c.end()
			}
			eventually(t, "one session is left", func() bool { return p.link().hub.watchers.only() != nil })
			go p.s.open()[0].put(policy.AskElicitation, `{"message":"now?","requestedSchema":{"type":"object","properties":{}}}`)
			equal(t, "the first question", text(p.stream.nextOf(policy.AskElicitation), "params", "message"), "[s] now?")
		})
	}
}

// deserted is a server that goes on with the calls that their clients have left, while the
// session of stream has none.
type deserted struct {
	*house
	s      *script
	stream *reply
	begun  int
	asked  int        // questions while only abandoned calls ran
	others []*session // all but that of stream
	flying []flight
	left   []*query
	done   chan struct{} // a late answer was sent
}

type flight struct {
	c  *session
	q  *query
	id string
}

func newDeserted(t *testing.T) *deserted {
	p := &deserted{s: stdio(t, "s", "legacy"), done: make(chan struct{})}
	p.s.serve = func(q *query) {
		if q.Method == "tools/call" {
			q.arrive()
			q.result(`{}`)
			p.done <- struct{}{}
		}
	}
	p.house = build(t, []Server{p.s.server()})
	b := p.legacy("/mcp/s", "uid:1000", elicits)
	p.stream = b.listen()
	return p
}

func (p *deserted) step(r *rand.Rand) {
	switch n := r.IntN(4); {
	case n == 0 && len(p.flying) < 2:
		p.begins()
	case n == 1 && len(p.flying) > 0:
		p.leaves(r.IntN(len(p.flying)), r.IntN(2) == 0)
	case n == 2 && len(p.flying) == 0 && len(p.left) > 1:
		p.answersLate(r.IntN(len(p.left)))
	case n == 3 && len(p.flying) == 0 && len(p.left) > 0:
		p.asks()
	}
}

// begins lets another session call a tool. Each has a name of its own, because calls of a tool
// that has asked run on another process.
func (p *deserted) begins() {
	p.begun++
	c := p.legacy("/mcp/s", "uid:1000", elicits)
	p.others = append(p.others, c)
	go c.begin("tools/call", fmt.Sprintf(`{"name":"t%d"}`, p.begun))
	eventually(p.t, "the call runs", func() bool { return len(p.s.got("tools/call")) == p.begun })
	p.flying = append(p.flying, flight{c, p.s.last("tools/call"), "1"})
}

// leaves lets a client cancel its call or end its session.
func (p *deserted) leaves(i int, cancels bool) {
	f := p.flying[i]
	p.flying = slices.Delete(p.flying, i, i+1)
	p.left = append(p.left, f.q)
	if cancels {
		f.c.notify("notifications/cancelled", `{"requestId":`+f.id+`}`)
	} else {
		f.c.end()
	}
	eventually(p.t, "the call is given up", func() bool { return len(p.link().live.Load().calling()) == len(p.flying) })
}

// answersLate lets the server answer an abandoned call, any of them.
func (p *deserted) answersLate(i int) {
	p.left = slices.Delete(p.left, i, i+1)
	p.s.proceed <- struct{}{}
	<-p.done
}

// asks lets the server ask while only abandoned calls run.
func (p *deserted) asks() {
	p.asked++
	answer := make(chan string, 1)
	go func() { answer <- p.s.open()[0].put(policy.AskElicitation, form) }()
	select {
	case got := <-answer:
		contains(p.t, "refused", got, `"action":"decline"`)
	case m := <-p.stream.msgs:
		p.t.Fatalf("a session without a call got %s", m)
	}
	eventually(p.t, "the refusal is on record", func() bool {
		n := 0
		for _, r := range p.records() {
			if r.Action == policy.AskElicitation && r.Kind == "outcome" && r.Result == "unsupported" {
				n++
			}
		}
		return n == p.asked
	})
}
