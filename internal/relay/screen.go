package relay

import (
	"github.com/doorward/doorward/internal/relay/content"
	"github.com/doorward/doorward/internal/relay/question"
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
