package relay

import (
	"context"
	"errors"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/content"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// call takes one request through the gate to a server and its answer back.
func (k *calls) call(ctx context.Context, x *front.Exchange, t *target) front.Reply {
	if reply := k.leaving.unguided(x, t); reply != nil {
		return *reply
	}
	if t.b.Builtin != nil {
		reply := k.builtin(ctx, x, t)
		// A result for a delivery session is valid only while that session lives, and
		// an MCP session may outlive it.
		reply.Transient = t.b.Name == guideServer
		return reply
	}
	return k.decided(ctx, x, t)
}

// decided takes one request through the gate to a server, after the operator where policy
// holds it.
func (k *calls) decided(ctx context.Context, x *front.Exchange, t *target) front.Reply {
	var act gate.Act
	var pass gate.Pass
	k.acts.counted(&act, x, t)
	if reply := k.holding.admit(ctx, x, t, &act, &pass); reply != nil {
		return *reply
	}
	return k.run(ctx, x, t, &pass)
}

// run takes an admitted request to its server.
func (k *calls) run(ctx context.Context, x *front.Exchange, t *target, pass *gate.Pass) front.Reply {
	if t.b.Scan != nil {
		t.found = new(content.Findings)
		defer func() {
			for _, f := range t.found.Take() {
				k.note(gate.Finding(k.acts.on(x, t.Target), pass.Ref, f.Rule, f.Result, f.N))
			}
		}()
	}
	reply, waits, err := k.atServer(ctx, x, t, pass)
	if errors.Is(err, errStale) {
		pass.Leave(resultHeld, 0)
		return k.decided(ctx, x, t)
	}
	if waits != nil {
		pass.Leave(resultHeld, 0)
		return *waits
	}
	if err != nil {
		return k.failures.failCall(ctx, t, *pass, err)
	}
	if reply.Error != nil {
		pass.Leave("error", int64(len(reply.Error.Raw)))
		return front.Reply{Error: reply.Error, Status: statusFor(t.Method(), reply.Error)}
	}
	pass.Leave("ok", int64(len(reply.Result)))
	return front.Reply{Result: reply.Result}
}

// atServer runs a request at its server. reply is the answer to a request that a built-in
// server found to be held and that the operator has not let through.
func (k *calls) atServer(ctx context.Context, x *front.Exchange, t *target, pass *gate.Pass) (out upstream.Reply, reply *front.Reply, err error) {
	if t.b.Builtin != nil {
		return k.withHeld(ctx, x, t, *pass)
	}
	out, err = k.watch.atServer(ctx, t, func(ctx context.Context) (upstream.Reply, error) { return k.forward(ctx, x, t) })
	return out, nil, err
}

// errStale says that an approval does not let an act through any more, and nothing was done.
var errStale = errors.New("what the act was held under has changed")

// withHeld runs a request at a built-in server, which may find that the request asks for an
// act that policy holds: a call of the tool send is the act agent.send. Then nothing was
// done: the operator is asked, and the request is made again with the approval. While it
// waits it does not count as a call in flight. reply is the answer if the operator has not
// let it through. The error of a call that waits for an event is an upstream.Waiting: that call
// does not count as one in flight either. It is errStale if the request itself has to be decided again.
func (k *calls) withHeld(ctx context.Context, x *front.Exchange, t *target, pass gate.Pass) (out upstream.Reply, reply *front.Reply, err error) {
	for {
		out, err = k.watch.atServer(ctx, t, func(ctx context.Context) (upstream.Reply, error) {
			return k.forward(upstream.WithLeft(gate.WithPass(ctx, pass), x.Left), x, t)
		})
		var held *gate.Held
		if !errors.As(err, &held) {
			return out, nil, err
		}
		pass.Waits()
		answer, reply := k.holding.await(ctx, x, t, held, argsOf(t))
		if reply != nil {
			return out, reply, nil
		}
		if answer.Stale {
			return out, nil, errStale
		}
		shown := asShown(*t, answer)
		t, pass.Given = &shown, answer.Approval
	}
}

// forward finds the connection and sends the request. A call that certainly did not reach the
// server is sent once more, on a new connection if the old one is over. A call that may have
// run is never repeated.
func (k *calls) forward(ctx context.Context, x *front.Exchange, t *target) (upstream.Reply, error) {
	b := t.b
	leave, err := b.traffic.enter(b.MaxConcurrency, b.spares(k.acts.own, x.Who))
	if err != nil {
		return upstream.Reply{}, err
	}
	defer leave()
	t, err = k.leaving.request(x, t)
	if err != nil {
		return upstream.Reply{}, err
	}
	reply, parked, err := k.resume(ctx, x, t)
	if parked {
		return reply, err
	}
	if t.continues {
		return upstream.Reply{}, failure.Invalid{E: failure.State}
	}
	l := k.take(x, t)
	defer l.calls.Add(-1)
	for again := true; ; again = false {
		c, err := l.get(ctx)
		if err != nil {
			return upstream.Reply{}, err
		}
		reply, err := k.exchange(ctx, x, l, c, t)
		if again && l.refusedHeaders(c, t, reply) {
			b.params.Forget()
			continue
		}
		if err == nil || isHeld(err) || upstream.Waits(err) != nil {
			return reply, err
		}
		l.drop(c)
		if !failure.NotRun(err) || !again || ctx.Err() != nil {
			return upstream.Reply{}, err
		}
	}
}

// exchange sends one request on one connection.
func (k *calls) exchange(ctx context.Context, x *front.Exchange, l *link, c *liveConn, t *target) (upstream.Reply, error) {
	if hearsBeside(x, l, c, t) {
		c.conn.Listen()
	}
	settled, err := c.offers.Settled(ctx, t.Target)
	if errors.Is(err, pin.ErrWithheld) && !keepsHere(x, c, t.Method()) {
		return k.disguise(ctx, x, l, c, *t, err)
	}
	if err != nil {
		return upstream.Reply{}, err
	}
	if settled.Name() != t.Name() {
		own := *t
		own.Target, t = settled, &own
	}
	if x.Session == nil {
		return k.ask(ctx, x, l, c, t)
	}
	reply, settle, done, err := l.remember(ctx, x, c, t)
	if done || err != nil {
		return reply, err
	}
	reply, err = k.ask(ctx, x, l, c, t)
	settle(err == nil && reply.Error == nil)
	return reply, err
}

// hearsBeside reports whether a legacy server may send something to a modern client during a
// call. A server that answers with JSON sends it on the stream for messages outside of calls.
func hearsBeside(x *front.Exchange, l *link, c *liveConn, t *target) bool {
	return x.Era == front.Modern && c.era == front.Legacy && (l.says.caps != nil || era.Hearer(x) != "" ||
		rawjson.GetPath(t.Params(), "_meta", "progressToken") != nil)
}

// ask sends one request to the server and returns its answer, both translated.
func (k *calls) ask(ctx context.Context, x *front.Exchange, l *link, c *liveConn, t *target) (upstream.Reply, error) {
	req, err := k.translation.outgoing(ctx, x, l, c, t)
	if err != nil {
		return upstream.Reply{}, err
	}
	labelled(x, l.b, &req)
	t.shelf.begin(x, l.b, c, l.mirrors(c), t.Method(), req.Params)
	k.levels.raise(ctx, x, l.b, c)
	if l.who != nil { // on a connection of several principals a message could be another's
		req.Logs = era.Hearer(x)
	}
	if x.Session == nil && l.says.caps != nil && c.era == front.Legacy && question.MayAsk(t.Method()) {
		reply, questions, err := k.parkable(ctx, l, c, x, *t, &req)
		if err != nil || questions {
			return reply, err
		}
		return k.translation.incoming(x, l, c, *t, reply)
	}
	if l.shared() && question.MayAsk(t.Method()) {
		call := &running{asked: t.Method() + " " + t.Name(), x: x}
		req.Asks = true
		c.begins(call)
		defer c.ends(call)
	}
	reply, err := l.callWith(ctx, c, x, t, &req)
	if err != nil {
		if w := upstream.Waits(err); w != nil {
			err = w.Then(k.translation.later(x, l, c, *t))
		}
		return reply, err
	}
	if x.Session != nil && c.era == front.Modern {
		if reply, err = l.rounds(ctx, c, x, t, req, reply); err != nil {
			return reply, err
		}
	}
	return k.translation.incoming(x, l, c, *t, reply)
}
