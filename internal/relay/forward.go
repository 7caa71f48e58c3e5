package relay

import (
	"context"
	"errors"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// forward finds the connection and sends. A call that certainly did not reach
// the server is sent once more, on a fresh connection if the old one is over;
// one that may have run never is.
func (k *calls) forward(ctx context.Context, x *front.Exchange, t target) (upstream.Reply, error) {
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
		if err == nil || isHeld(err) {
			return reply, err
		}
		l.drop(c)
		if !failure.NotRun(err) || !again || ctx.Err() != nil {
			return upstream.Reply{}, err
		}
	}
}

// exchange sends one request on one connection.
func (k *calls) exchange(ctx context.Context, x *front.Exchange, l *link, c *liveConn, t target) (upstream.Reply, error) {
	var err error
	t.Target, err = c.offers.Settled(ctx, t.Target)
	if errors.Is(err, pin.ErrWithheld) && !keepsHere(x, c, t.Method()) {
		return k.disguise(ctx, x, l, c, t, err)
	}
	if err != nil {
		return upstream.Reply{}, err
	}
	if x.Session != nil {
		if reply, done, err := l.remember(ctx, x, c, t); done || err != nil {
			return reply, err
		}
	}
	req, err := k.translation.outgoing(ctx, x, l, c, t)
	if err != nil {
		return upstream.Reply{}, err
	}
	labelled(x, l.b, &req)
	t.shelf.begin(x, l.b, c, l.mirrors(c), t.Method(), req.Params)
	k.levels.raise(ctx, x, l.b, c)
	if l.who != nil { // where principals share, a message could be another's
		req.Logs = era.Hearer(x)
	}
	if x.Session == nil && l.says.caps != nil && c.era == front.Legacy && question.MayAsk(t.Method()) {
		reply, questions, err := k.parkable(ctx, l, c, x, t, &req)
		if err != nil || questions {
			return reply, err
		}
		return k.translation.incoming(x, l, c, t, reply)
	}
	if l.shared() && question.MayAsk(t.Method()) {
		defer c.begins(x, t.Method()+" "+t.Name())()
	}
	reply, err := l.callWith(ctx, c, x, t, &req)
	if err == nil && x.Session != nil && c.era == front.Modern {
		reply, err = l.rounds(ctx, c, x, t, req, reply)
	}
	if err != nil {
		return reply, err
	}
	return k.translation.incoming(x, l, c, t, reply)
}
