package relay

import (
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/content"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream"
)

// screen has content rules look at what a server says, on the way to an answer or unasked.
// False: it may not go on, and a question has been answered.
func (a *questioner) screen(c *liveConn, f *content.Findings, e *upstream.Event) bool {
	if content.Event(a.rules, f, e) {
		return true
	}
	if e.ID != nil {
		go a.reply(c, e.ID, question.Refusal(e.Method))
	}
	return false
}

// screened is screen for what belongs to no call.
func (a *questioner) screened(c *liveConn, e *upstream.Event) bool {
	if a.rules == nil {
		return true
	}
	var f content.Findings
	ok := a.screen(c, &f, e)
	a.tally(e.Method, &f)
	return ok
}

// cleaned is what a client answers a server's question with, as content rules leave it.
func (a *questioner) cleaned(reply upstream.Reply) upstream.Reply {
	var f content.Findings
	reply = content.Answer(a.rules, &f, reply)
	a.tally("answer", &f)
	return reply
}

// tally records what was found outside of calls, or sums it up.
func (a *questioner) tally(action string, f *content.Findings) {
	for _, found := range f.Take() {
		a.unasked.Add(action, found, a.found)
	}
}

func (a *questioner) found(action string, f content.Finding) {
	who, session := a.whom(nil)
	x := front.Exchange{Who: who, Session: session}
	a.note(gate.Finding(a.questions.acts.of(&x, a.questions.server, action, ""), 0, f.Rule, f.Result, f.N))
}
