package relay

import (
	"context"
	"errors"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream"
)

// withHeld has a request at a server that is part of the daemon, which may find that what
// the request asks for is an act that policy holds, such as agent.send of the call of the
// tool send. Then nothing was done: the operator is asked, and the request is made again
// with the approval. While it waits it takes no place of those that are under way. reply
// is the answer where the operator has not let it through.
func withHeld(ctx context.Context, r *Relay, x *front.Exchange, t target, pass gate.Pass) (out upstream.Reply, reply *front.Reply, err error) {
	for {
		out, err = r.watch.atServer(ctx, t, func(ctx context.Context) (upstream.Reply, error) {
			return r.forward(upstream.WithLeft(gate.WithPass(ctx, pass), x.Left), x, t)
		})
		var held *gate.Held
		if !errors.As(err, &held) {
			return out, nil, err
		}
		pass.Waits()
		answer, reply := r.holding.await(ctx, x, t, held, argsOf(t))
		if reply != nil {
			return out, reply, nil
		}
		t, pass.Given = asShown(t, answer), answer.Approval
	}
}

// isHeld reports whether a server has done nothing, since policy holds what was asked for.
func isHeld(err error) bool {
	var held *gate.Held
	return errors.As(err, &held)
}
