package relay

import (
	"context"
	"errors"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/content"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/naming"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// call takes one request through the gate to a server and its answer back.
func (r *Relay) call(ctx context.Context, x *front.Exchange, t target) front.Reply {
	if reply := r.leaving.unguided(x, t); reply != nil {
		return *reply
	}
	if t.b.Builtin != nil {
		reply := r.callBuiltin(ctx, x, t)
		// A result for a delivery session is valid only while that session lives, and
		// an MCP session may outlive it.
		reply.Transient = t.b.Name == guideServer
		return reply
	}
	return r.decided(ctx, x, t, r.acts.counted(x, t))
}

// decided takes one request through the gate, after the operator where policy has it
// held, to a server of somebody else's.
func (r *Relay) decided(ctx context.Context, x *front.Exchange, t target, act gate.Act) front.Reply {
	t, pass, reply := r.holding.admit(ctx, x, t, act)
	if reply != nil {
		return *reply
	}
	return r.run(ctx, x, t, pass)
}

// enter asks the gate. The server's limit is checked here, so that a refusal has
// one record, and a call is counted only once it is let in, so that a refused
// call takes no place.
func (r *Relay) enter(ctx context.Context, x *front.Exchange, t target) (gate.Pass, error) {
	return r.watch.enter(ctx, r.gate, t, r.acts.counted(x, t))
}

// run takes a request that was let in to its server.
func (r *Relay) run(ctx context.Context, x *front.Exchange, t target, pass gate.Pass) front.Reply {
	if t.b.Scan != nil {
		t.found = new(content.Findings)
		defer func() { r.noteFindings(x, t, pass) }()
	}
	reply, waits, err := atServer(ctx, r, x, t, pass)
	if waits != nil {
		pass.Leave(resultHeld, 0)
		return *waits
	}
	if err != nil {
		return r.failures.failCall(ctx, t, pass, err)
	}
	if reply.Error != nil {
		pass.Leave("error", int64(len(reply.Error.Raw)))
		return front.Reply{Error: reply.Error, Status: statusFor(t.Method(), reply.Error)}
	}
	pass.Leave("ok", int64(len(reply.Result)))
	return front.Reply{Result: reply.Result}
}

// atServer has a request at its server. reply is the answer of one that a built-in server
// found to be held, and that the operator has not let through.
func atServer(ctx context.Context, r *Relay, x *front.Exchange, t target, pass gate.Pass) (out upstream.Reply, reply *front.Reply, err error) {
	if t.b.Builtin != nil {
		return withHeld(ctx, r, x, t, pass)
	}
	out, err = r.watch.atServer(ctx, t, func(ctx context.Context) (upstream.Reply, error) { return r.forward(ctx, x, t) })
	return out, nil, err
}

// forward finds the connection and sends. A call that certainly did not reach
// the server is sent once more, on a fresh connection if the old one is over;
// one that may have run never is.
func (r *Relay) forward(ctx context.Context, x *front.Exchange, t target) (upstream.Reply, error) {
	b := t.b
	leave, err := b.traffic.enter(b.MaxConcurrency, b.spares(r.acts.own, x.Who))
	if err != nil {
		return upstream.Reply{}, err
	}
	defer leave()
	t, err = r.leaving.request(x, t)
	if err != nil {
		return upstream.Reply{}, err
	}
	reply, parked, err := r.resume(ctx, x, t)
	if parked {
		return reply, err
	}
	if t.continues {
		return upstream.Reply{}, failure.Invalid{E: failure.State}
	}
	l := r.take(x, t)
	defer l.calls.Add(-1)
	for again := true; ; again = false {
		c, err := l.get(ctx)
		if err != nil {
			return upstream.Reply{}, err
		}
		reply, err := r.exchange(ctx, x, l, c, t)
		if again && l.refusedHeaders(c, t, reply) {
			b.params.Forget()
			continue
		}
		if err == nil || isHeld(err) {
			return reply, err
		}
		l.drop(c)
		if !failure.NotRun(err) || !again || ctx.Err() != nil {
			return upstream.Reply{}, err
		}
	}
}

// refusedHeaders: a modern HTTP server that wants other Mcp-Param headers has
// changed its tools unnoticed, and has not run the call (Streamable HTTP,
// "Client Behavior").
func (l *link) refusedHeaders(c *liveConn, t target, reply upstream.Reply) bool {
	return reply.Error != nil && reply.Error.Code == front.CodeHeaderMismatch && t.Method() == "tools/call" && l.mirrors(c)
}

// linkFor is the connection place that serves this exchange.
func (r *Relay) linkFor(x *front.Exchange, b *backend) *link {
	if x.Session == nil {
		return modernLink(r, x, b)
	}
	return r.bindingOf(x.Session).link(b, func() []byte { return r.sessionInit(x, b) })
}

// noteFindings records what a call's messages held.
func (r *Relay) noteFindings(x *front.Exchange, t target, pass gate.Pass) {
	for _, f := range t.found.Take() {
		r.note(gate.Finding(r.acts.on(x, t.Target), pass.Ref, f.Rule, f.Result, f.N))
	}
}

// exchange sends one request on one connection.
func (r *Relay) exchange(ctx context.Context, x *front.Exchange, l *link, c *liveConn, t target) (upstream.Reply, error) {
	var err error
	t.Target, err = c.offers.Settled(ctx, t.Target)
	if errors.Is(err, pin.ErrWithheld) && !keepsHere(x, c, t.Method()) {
		return l.disguise(ctx, x, c, t, err)
	}
	if err != nil {
		return upstream.Reply{}, err
	}
	if x.Session != nil {
		if reply, done, err := l.remember(ctx, x, c, t); done || err != nil {
			return reply, err
		}
	}
	req, err := r.translation.outgoing(ctx, x, l, c, t)
	if err != nil {
		return upstream.Reply{}, err
	}
	labelled(x, l.b, &req)
	t.shelf.begin(x, l, c, t.Method(), req.Params)
	l.raise(ctx, x, c)
	if l.who != nil { // where principals share, a message could be another's
		req.Logs = era.Hearer(x)
	}
	if x.Session == nil && l.says.caps != nil && c.era == front.Legacy && question.MayAsk(t.Method()) {
		reply, questions, err := l.parkable(ctx, c, x, t, &req)
		if err != nil || questions {
			return reply, err
		}
		return r.translation.incoming(x, l, c, t, reply)
	}
	if l.shared() && question.MayAsk(t.Method()) {
		defer c.begins(x, t)()
	}
	reply, err := l.callWith(ctx, c, x, t, &req)
	if err == nil && x.Session != nil && c.era == front.Modern {
		reply, err = l.rounds(ctx, c, x, t, req, reply)
	}
	if err != nil {
		return reply, err
	}
	return r.translation.incoming(x, l, c, t, reply)
}

// callWith sends one request, with everything looked at that content rules are
// for.
func (l *link) callWith(ctx context.Context, c *liveConn, x *front.Exchange, t target, req *upstream.Request) (upstream.Reply, error) {
	return l.callThrough(ctx, c, t, req, func(e upstream.Event) { l.during(c, x, e) })
}

// callThrough is callWith with a receiver of its own for what the server says during
// the call.
func (l *link) callThrough(ctx context.Context, c *liveConn, t target, req *upstream.Request, hear func(upstream.Event)) (upstream.Reply, error) {
	if err := content.Request(l.b.Scan, t.found, req); err != nil {
		return upstream.Reply{}, err
	}
	changes := c.offers.Changes(t.Method())
	reply, err := c.conn.Call(ctx, req, func(e upstream.Event) {
		if l.asks.screen(c, t.found, &e) {
			hear(e)
		}
	})
	if err != nil {
		return reply, err
	}
	if reply, err = content.Reply(l.b.Scan, t.found, t.Method(), reply); err != nil || reply.Error != nil {
		return reply, err
	}
	shown, err := c.offers.Shown(ctx, t.Target, changes, reply.Result)
	return upstream.Reply{Result: shown, Plain: reply.Plain && rawjson.Same(shown, reply.Result)}, err
}

// during takes what a server says on behalf of a call.
func (l *link) during(c *liveConn, x *front.Exchange, e upstream.Event) {
	switch {
	case e.ID != nil:
		l.asks.learnAsker(c, x)
		l.asks.asked(c, x, e)
	case e.Method == "notifications/cancelled":
		c.retract(e.Params)
	case protocol.IsChange(e.Method):
		l.hub.publish(e)
	case e.Method == "notifications/message" && x.Era == front.Modern && !era.HearsLog(x, e.Params):
	case e.Method == "notifications/message" && l.shared() && !l.r.bindingOf(x.Session).hearsLog(e.Params):
	case blocked(e.Method):
	case !l.asks.questions.passes(func() question.Client { return question.InCall(x) }, &e):
	case x.Server == "":
		x.Notify(e.Method, naming.Event(l.b.Name, e))
	default:
		x.Notify(e.Method, e.Params)
	}
}

// blocked names notifications that would put a server's text into the
// client's conversation unasked; only Doorward itself may use that channel.
func blocked(method string) bool { return method == "notifications/claude/channel" }
