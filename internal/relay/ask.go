package relay

import (
	"context"
	"net/url"
	"time"

	"github.com/doorward/doorward/internal/front"
	"github.com/doorward/doorward/internal/gate"
	"github.com/doorward/doorward/internal/policy"
	"github.com/doorward/doorward/internal/principal"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/wire"
)

// askTime is how long a person may take to answer a server's question.
const askTime = 10 * time.Minute

// Answers to a server that may not ask, or whose client cannot be asked.
var (
	declined   = upstream.Reply{Result: []byte(`{"action":"decline"}`)}
	cancelled  = upstream.Reply{Result: []byte(`{"action":"cancel"}`)}
	notAskable = upstream.Reply{Error: errNoMethod}
)

// asked serves a request that a legacy server makes of its client: x is the
// exchange whose call it came with, or nil. It returns at once; the server is
// answered once, unless it takes its question back.
func (l *link) asked(c *liveConn, x *front.Exchange, e upstream.Event) {
	ctx, cancel := context.WithTimeout(l.ctx, askTime)
	q := c.note(e.ID, cancel)
	if q == nil {
		cancel()
		l.r.log.Warn("too many questions of a server at once, or two under one id", "server", l.b.Name)
		go l.reply(c, e.ID, refusal(e.Method))
		return
	}
	go func() {
		defer cancel()
		go func() { // nobody waits for the answer once the connection is gone
			select {
			case <-c.conn.Done():
				cancel()
			case <-ctx.Done():
			}
		}()
		reply := l.answer(ctx, x, e)
		if c.settle(e.ID, q) && c.alive() {
			l.reply(c, e.ID, reply)
		}
	}()
}

func (l *link) reply(c *liveConn, id wire.ID, reply upstream.Reply) {
	ctx, cancel := context.WithTimeout(l.ctx, sideTime)
	defer cancel()
	if err := c.conn.Answer(ctx, id, l.scanAnswer(reply)); err != nil {
		l.r.log.Debug("answer to server not delivered", "server", l.b.Name, "err", err)
	}
}

// answer decides, records and asks.
func (l *link) answer(ctx context.Context, x *front.Exchange, e upstream.Event) upstream.Reply {
	who, session := l.askedOf(x)
	asked := front.Exchange{Who: who, Session: session, Size: int64(len(e.Params)), Confirmed: session.Confirmed()}
	act := l.r.act(&asked, l.b.Name, e.Method, "")
	act.Kind = gate.Question
	pass, err := l.r.gate.Enter(act)
	if err != nil {
		return refusal(e.Method)
	}
	if session == nil || !serves(wire.Get(session.Init, "capabilities"), e.Method, e.Params) {
		l.r.gate.Leave(pass, "unsupported", 0)
		return refusal(e.Method)
	}
	params := e.Params
	if e.Method == policy.AskElicitation {
		params = label(l.b.Name, params)
	}
	reply, err := put(ctx, x, session, e.Method, params)
	if err != nil {
		l.r.gate.Leave(pass, "unanswered", 0)
		if e.Method == policy.AskElicitation {
			return cancelled
		}
		return notAskable
	}
	out, ok := l.r.leavingAnswer(act, reply)
	if !ok {
		l.r.gate.Leave(pass, "blocked", 0)
		return refusal(e.Method)
	}
	l.r.gate.Leave(pass, "ok", int64(len(reply.Result)))
	return out
}

// put asks on the stream of the exchange it came with, else on the session's
// own; one stream only (2025-11-25 Transports, "Multiple Connections").
func put(ctx context.Context, x *front.Exchange, s *front.Session, method string, params []byte) (front.Reply, error) {
	if x != nil {
		return x.Ask(ctx, method, params)
	}
	return s.Ask(ctx, method, params)
}

// askedOf is whom a question is for. On a pooled connection nobody can be
// asked: no capability was declared there, and which of several calls a
// question belongs to is a guess that could show it to the wrong caller.
func (l *link) askedOf(x *front.Exchange) (*principal.Principal, *front.Session) {
	switch {
	case l.private():
		return l.session.Owner(), l.session
	case x != nil:
		return x.Who, nil
	}
	return l.who, nil
}

func refusal(method string) upstream.Reply {
	if method == policy.AskElicitation {
		return declined
	}
	return notAskable
}

// serves reports whether a client that declared caps can be asked this. A
// method that Doorward does not know is between the client and the server.
func serves(caps []byte, method string, params []byte) bool {
	capability := capabilityOf(method)
	if capability == "" {
		return true
	}
	declared := wire.Get(caps, capability)
	if declared == nil || method != policy.AskElicitation {
		return declared != nil
	}
	if mode, _ := wire.GetString(params, "mode"); mode == "url" {
		text, _ := wire.GetString(params, "url")
		return wire.Get(declared, "url") != nil && safeURL(text)
	}
	return wire.Get(declared, "form") != nil || wire.Get(declared, "url") == nil
}

// safeURL admits what a user may be sent to: https, or this machine
// (protocol.md 3.9). Nothing is fetched here.
func safeURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.Host == "" {
		return false
	}
	switch u.Hostname() {
	case "localhost", "127.0.0.1", "::1":
		return u.Scheme == "http" || u.Scheme == "https"
	}
	return u.Scheme == "https"
}

// askOf maps a client capability to the action that policy decides.
var askOf = []struct{ capability, action string }{
	{"elicitation", policy.AskElicitation},
	{"sampling", policy.AskSampling},
	{"roots", policy.AskRoots},
}

func capabilityOf(method string) string {
	for _, a := range askOf {
		if a.action == method {
			return a.capability
		}
	}
	return ""
}

// label puts the server's name in front of what it asks the user: clients
// show who asks, and they know only Doorward (Elicitation, "Security
// Considerations").
func label(server string, params []byte) []byte {
	msg, _ := wire.GetString(params, "message")
	return wire.Set(params, wire.Edit{Key: "message", Value: wire.AppendQuote(nil, "["+server+"] "+msg)})
}
