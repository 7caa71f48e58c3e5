package relay

import (
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/upstream"
)

// askedOutside takes a question that came with no call.
func (a *questioner) askedOutside(c *liveConn, e upstream.Event) {
	switch {
	case a.shared():
		a.askedBeside(c, e)
	case a.says.caps == nil || !a.askedByOne(c, e):
		a.asked(c, nil, e)
	}
}

// askedByOne finds the call of a modern client that a question belongs to, when
// the server asks on a stream that all calls share. With several that it may be,
// none is asked, and from then on each of their tools gets a connection of its own.
func (a *questioner) askedByOne(c *liveConn, e upstream.Event) bool {
	all := c.candidates()
	if len(all) == 1 {
		all[0].ask(e)
		return true
	}
	for _, p := range all {
		a.known.learn(p.what())
	}
	return false
}

// learnAsker notes that the call of an exchange asks.
func (a *questioner) learnAsker(c *liveConn, x *front.Exchange) {
	for _, call := range c.calling() {
		if call.x == x {
			a.known.learn(call.asked)
		}
	}
}

// askedBeside takes a question of a shared server that came with no call: it is for
// the only session whose calls run, or for the only session that there is.
func (a *questioner) askedBeside(c *liveConn, e upstream.Event) {
	var x *front.Exchange
	for _, call := range c.calling() {
		a.known.learn(call.asked)
		if x != nil && x.Session != call.x.Session {
			go a.refuse(c, e)
			return
		}
		x = call.x
	}
	a.asked(c, x, e)
}

// refuse answers a question that nobody can be asked, and records it.
func (a *questioner) refuse(c *liveConn, e upstream.Event) {
	if _, pass, err := a.questions.decide(question.Client{X: front.Exchange{Who: a.who}}, e.Method, e.Params); err == nil {
		pass.Leave("unsupported", 0)
	}
	a.reply(c, e.ID, question.Refusal(e.Method))
}
