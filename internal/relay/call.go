package relay

import (
	"context"
	"errors"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/content"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream"
)

// call takes one request through the gate to a server and its answer back.
func (k *calls) call(ctx context.Context, x *front.Exchange, t target) front.Reply {
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
	return k.decided(ctx, x, t, k.acts.counted(x, t))
}

// decided takes one request through the gate, after the operator where policy has it
// held, to a server of somebody else's.
func (k *calls) decided(ctx context.Context, x *front.Exchange, t target, act gate.Act) front.Reply {
	t, pass, reply := k.holding.admit(ctx, x, t, act)
	if reply != nil {
		return *reply
	}
	return k.run(ctx, x, t, pass)
}

// enter asks the gate. The server's limit is checked here, so that a refusal has
// one record, and a call is counted only once it is let in, so that a refused
// call takes no place.
func (k *calls) enter(ctx context.Context, x *front.Exchange, t target) (gate.Pass, error) {
	return k.watch.enter(ctx, k.gate, t, k.acts.counted(x, t))
}

// run takes a request that was let in to its server.
func (k *calls) run(ctx context.Context, x *front.Exchange, t target, pass gate.Pass) front.Reply {
	if t.b.Scan != nil {
		t.found = new(content.Findings)
		defer func() { k.noteFindings(x, t, pass) }()
	}
	reply, waits, err := k.atServer(ctx, x, t, pass)
	if waits != nil {
		pass.Leave(resultHeld, 0)
		return *waits
	}
	if err != nil {
		return k.failures.failCall(ctx, t, pass, err)
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
func (k *calls) atServer(ctx context.Context, x *front.Exchange, t target, pass gate.Pass) (out upstream.Reply, reply *front.Reply, err error) {
	if t.b.Builtin != nil {
		return k.withHeld(ctx, x, t, pass)
	}
	out, err = k.watch.atServer(ctx, t, func(ctx context.Context) (upstream.Reply, error) { return k.forward(ctx, x, t) })
	return out, nil, err
}

// withHeld has a request at a server that is part of the daemon, which may find that what
// the request asks for is an act that policy holds, such as agent.send of the call of the
// tool send. Then nothing was done: the operator is asked, and the request is made again
// with the approval. While it waits it takes no place of those that are under way. reply
// is the answer where the operator has not let it through.
func (k *calls) withHeld(ctx context.Context, x *front.Exchange, t target, pass gate.Pass) (out upstream.Reply, reply *front.Reply, err error) {
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
		t, pass.Given = asShown(t, answer), answer.Approval
	}
}
