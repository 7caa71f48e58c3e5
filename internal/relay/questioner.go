package relay

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/content"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/naming"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/scan"
)

// askTime is how long a person may take to answer a server's question.
const askTime = 10 * time.Minute

// questioner puts the questions of one server to the clients of one link.
type questioner struct {
	owner
	questions questions
	rules     *scan.Scanner  // nil: nothing is scanned
	unasked   *content.Tally // findings outside of calls
	known     *askers
	leaving   *leaving
	note      func(*audit.Record)
	log       *slog.Logger
	ctx       context.Context       // ends with the link
	only      func() *front.Session // the session that alone uses the link; nil: there are several, or none
}

// asked serves a request of a legacy server to its client. x is the exchange whose call it
// came with, or nil. It returns at once. The server is answered once, unless it cancels the
// request.
func (a *questioner) asked(c *liveConn, x *front.Exchange, e upstream.Event) {
	ctx, cancel := context.WithTimeout(a.ctx, askTime)
	q := c.note(e.ID, question.OpenQuestions, cancel)
	if q == nil {
		cancel()
		a.refuseExcess(c, e)
		return
	}
	go func() {
		defer cancel()
		go func() { // once the connection is gone, no answer can be delivered
			select {
			case <-c.conn.Done():
				cancel()
			case <-ctx.Done():
			}
		}()
		reply := a.answer(ctx, x, e)
		c.settle(e.ID, q, func() {
			if c.alive() {
				a.reply(c, e.ID, reply)
			}
		})
	}()
}

func (a *questioner) reply(c *liveConn, id wire.ID, reply upstream.Reply) {
	ctx, cancel := context.WithTimeout(a.ctx, sideTime)
	defer cancel()
	if err := c.conn.Answer(ctx, id, a.cleaned(reply)); err != nil {
		a.log.Debug("answer to server not delivered", "server", a.questions.server, "err", err)
	}
}

// answer asks the client, if it may be asked.
func (a *questioner) answer(ctx context.Context, x *front.Exchange, e upstream.Event) upstream.Reply {
	who, session := a.whom(x)
	to := question.Client{X: front.Exchange{Who: who, Session: session, SameProgram: session.SameProgram()}}
	params := e.Params
	if !e.Plain && wire.HoldsQuestions(params) {
		var err error
		if params, err = a.questions.embedded(to, params); err != nil {
			return question.Refusal(e.Method)
		}
	}
	if session != nil {
		to.Caps = rawjson.Get(session.Init.Params(), "capabilities")
	}
	reply, err := a.pose(ctx, x, to, e.Method, params)
	switch {
	case errors.Is(err, failure.ErrUnanswered):
		return question.Unanswered(e.Method)
	case err != nil:
		return question.Refusal(e.Method)
	}
	return reply
}

// pose decides on one question of a server, puts it to the client's session, and
// returns the client's answer as the server may have it. An error that wraps
// failure.ErrUnanswered means that no answer came. Any other error means that the client
// must not be asked, or that its answer must not leave.
func (a *questioner) pose(ctx context.Context, x *front.Exchange, to question.Client, method string, params []byte) (upstream.Reply, error) {
	params, pass, err := a.questions.decide(to, method, params)
	if err != nil {
		return upstream.Reply{}, err
	}
	if to.X.Session == nil {
		a.questions.unsupported(pass, method)
		return upstream.Reply{}, failure.ErrAsksTooMuch
	}
	if to.X.Session.Server == "" {
		params = naming.Server(a.questions.server).Question(params)
	}
	reply, err := put(ctx, x, to.X.Session, method, params)
	if err != nil {
		pass.Leave("unanswered", 0)
		return upstream.Reply{}, errors.Join(failure.ErrUnanswered, err)
	}
	out, ok := a.leaving.answer(pass.Act(), reply)
	if !ok {
		pass.Leave("blocked", 0)
		return upstream.Reply{}, failure.ErrAsksTooMuch
	}
	pass.Leave("ok", int64(len(reply.Result)))
	return out, nil
}

// put asks on the stream of the exchange it came with, else on the session's
// own; one stream only (2025-11-25 Transports, "Multiple Connections").
func put(ctx context.Context, x *front.Exchange, s *front.Session, method string, params []byte) (front.Reply, error) {
	if x != nil {
		return x.Ask(ctx, method, params)
	}
	return s.Ask(ctx, method, params)
}

// whom returns the principal and the session that a question is for; the session may be nil.
// A pooled connection without capabilities has none. Where sessions with the same
// capabilities share a connection, it is the session of the call that the question came with,
// or the only session.
func (a *questioner) whom(x *front.Exchange) (*principal.Principal, *front.Session) {
	switch {
	case a.private():
		return a.session.Owner(), a.session
	case a.shared():
		if s := a.sessionOf(x); s != nil {
			return s.Owner(), s
		}
		return a.who, nil
	case x != nil:
		return x.Who, nil
	}
	return a.who, nil
}

// outsideCalls returns the client of the server's messages outside of calls. Such a message
// has no answer, so the client declares no capabilities and can be asked nothing in it.
func (a *questioner) outsideCalls() question.Client {
	who, session := a.whom(nil)
	return question.Client{X: front.Exchange{Who: who, Session: session}}
}

// sessionOf returns the session that a question on a shared connection is for; nil: it is not
// known.
func (a *questioner) sessionOf(x *front.Exchange) *front.Session {
	if x != nil {
		return x.Session
	}
	return a.only()
}

// cleaned applies the content rules to a client's answer to a question.
func (a *questioner) cleaned(reply upstream.Reply) upstream.Reply {
	var f content.Findings
	reply = content.Answer(a.rules, &f, reply)
	a.tally("answer", &f)
	return reply
}

// tally records findings outside of calls, or adds them to a sum.
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

// screen applies the content rules to a message of the server, during a call or outside.
// False: it must not be forwarded; a question has been answered with a refusal.
func (a *questioner) screen(c *liveConn, f *content.Findings, e *upstream.Event) bool {
	if content.Event(a.rules, f, e) {
		return true
	}
	if e.ID != nil {
		a.refuse(c, *e)
	}
	return false
}

// screened is screen for a message that belongs to no call.
func (a *questioner) screened(c *liveConn, e *upstream.Event) bool {
	if a.rules == nil {
		return true
	}
	var f content.Findings
	ok := a.screen(c, &f, e)
	a.tally(unaskedKind(e), &f)
	return ok
}

// unaskedKind returns the action of findings in a message outside of calls: the method if the protocol defines it, and one
// word for all others, because the server chooses the names of these.
func unaskedKind(e *upstream.Event) string {
	switch {
	case e.ID != nil:
		return kindOf(e.Method)
	case e.Method == "notifications/message", e.Method == "notifications/progress", protocol.IsChange(e.Method):
		return e.Method
	}
	return "notification"
}

// askedOutside takes a question that came outside of calls.
func (a *questioner) askedOutside(c *liveConn, e upstream.Event) {
	switch {
	case a.shared():
		a.askedBeside(c, e)
	case a.says.caps == nil || !a.askedByOne(c, e):
		a.asked(c, nil, e)
	}
}

// askedByOne passes a question to the call of a modern client that it belongs to, where the
// server asks on a stream that all calls share. If it may belong to several, it is passed to
// none, and from then on each of their tools gets a connection of its own.
func (a *questioner) askedByOne(c *liveConn, e upstream.Event) bool {
	all := c.candidates()
	if len(all) == 1 {
		all[0].call.ask(e)
		return true
	}
	for _, p := range all {
		a.known.learn(p.asked)
	}
	return false
}

// learnAsker notes that the server asks during the call of an exchange.
func (a *questioner) learnAsker(c *liveConn, x *front.Exchange) {
	for _, call := range c.calling() {
		if call.x == x {
			a.known.learn(call.asked)
		}
	}
}

// askedBeside takes a question outside of calls on a connection that sessions share. It is
// for the only session with calls in flight, or for the only session of the link. It is refused
// when no call is in flight and a client has left a call that the server has not answered.
func (a *questioner) askedBeside(c *liveConn, e upstream.Event) {
	var x *front.Exchange
	calls := c.calling()
	if len(calls) == 0 && upstream.Abandoned(c.conn) {
		a.refuseAll(c, e)
		return
	}
	for _, call := range calls {
		a.known.learn(call.asked)
		if x != nil && x.Session != call.x.Session {
			a.refuseAll(c, e)
			return
		}
		x = call.x
	}
	a.asked(c, x, e)
}

// refuseAll refuses and records a question that cannot be assigned to one client.
func (a *questioner) refuseAll(c *liveConn, e upstream.Event) {
	if _, pass, err := a.questions.decide(question.Client{X: front.Exchange{Who: a.who}}, e.Method, e.Params); err == nil {
		a.questions.unsupported(pass, e.Method)
	}
	a.refuse(c, e)
}

// refuse refuses a question. It returns at once. A server that lets too many refusals wait
// loses its connection.
func (a *questioner) refuse(c *liveConn, e upstream.Event) {
	// The id may be a part of a large message, which must not be kept for it.
	starts, overflows := c.refusals.add(refusal{bytes.Clone(e.ID), question.Refusal(e.Method)})
	switch {
	case overflows:
		a.log.Warn("a server asks without reading the answers: its connection is closed", "server", a.questions.server)
		c.conn.Close()
	case starts:
		go a.sendRefusals(c)
	}
}

func (a *questioner) sendRefusals(c *liveConn) {
	for one, ok := c.refusals.next(); ok; one, ok = c.refusals.next() {
		a.reply(c, one.id, one.reply)
	}
}

// refuseExcess refuses a question beyond the number that may be open. The log has one line
// about them for each connection.
func (a *questioner) refuseExcess(c *liveConn, e upstream.Event) {
	if c.refusals.warns() {
		a.log.Warn("too many questions of a server at once, or two under one id; further ones on this connection are not logged", "server", a.questions.server)
	}
	a.refuse(c, e)
}
