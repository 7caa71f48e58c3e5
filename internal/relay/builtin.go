package relay

import (
	"cmp"
	"context"
	"errors"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream"
)

// builtin takes one request to a server that is part of the daemon. A call of a tool is
// decided here, and the server records it together with its effect; an answer without a
// record is withheld. Every other request is recorded like one to any server.
func (k *calls) builtin(ctx context.Context, x *front.Exchange, t *target) front.Reply {
	if t.Method() != "tools/call" {
		return k.decided(ctx, x, t)
	}
	var act gate.Act
	var pass gate.Pass
	k.acts.counted(&act, x, t)
	act = act.Deferred()
	refused := k.holding.admit(ctx, x, t, &act, &pass)
	if refused != nil {
		return *refused
	}
	waits := false
	defer func() {
		if !waits {
			pass.Leave("ok", 0)
		}
	}()
	reply, refused, err := k.withHeld(ctx, x, t, pass)
	if refused != nil {
		return *refused
	}
	if errors.Is(err, errStale) {
		return k.builtin(ctx, x, t)
	}
	if call := upstream.Waits(err); call != nil {
		waits = true
		return front.Reply{Later: &later{k: k, x: x, b: t.b, method: t.Method(), pass: pass, call: call}}
	}
	return k.byBuiltin(ctx, t.b, t.Method(), pass, reply, err)
}

// later is a call of a built-in server that waits for an event. It implements front.Later.
type later struct {
	k      *calls
	x      *front.Exchange
	b      *backend
	method string
	pass   gate.Pass
	call   *upstream.Waiting
}

func (l *later) Await(ctx context.Context) { l.call.Await(ctx) }

func (l *later) Go(ctx context.Context) (answer front.Reply) {
	defer func() {
		if answer.Later == nil { // also after a panic
			l.pass.Leave("ok", 0)
		}
	}()
	reply, err := l.call.Go(upstream.WithLeft(ctx, l.x.Left))
	if call := upstream.Waits(err); call != nil {
		l.call = call
		return front.Reply{Later: l}
	}
	return l.k.byBuiltin(ctx, l.b, l.method, l.pass, reply, err)
}

// byBuiltin returns the answer to a call that has ended at its server.
func (k *calls) byBuiltin(ctx context.Context, b *backend, method string, pass gate.Pass, reply upstream.Reply, err error) front.Reply {
	switch {
	case err == nil && !pass.Recorded():
		return k.unrecorded(b, pass)
	case err == nil && reply.Error != nil:
		return front.Reply{Error: reply.Error, Status: statusFor(method, reply.Error)}
	case err == nil:
		return front.Reply{Result: reply.Result}
	}
	return k.failBuiltin(ctx, b, pass, err)
}

// unrecorded withholds the answer to a call that its server has not recorded.
func (k *calls) unrecorded(b *backend, pass gate.Pass) front.Reply {
	refusal := pass.Refuse("builtin.unrecorded", gate.CodeUnavailable)
	k.log.Error("a built-in server has not recorded a call; its answer is withheld", "server", b.Name, "ref", refusal.Ref, "err", refusal.Err)
	return k.failures.refused(&gate.Refusal{Code: gate.CodeUnavailable, Ref: refusal.Ref, Rule: pass.Rule(), Err: cmp.Or(refusal.Err, errUnrecorded)})
}

var errUnrecorded = errors.New("the server has made no record of the call")

// failBuiltin answers a call that its server did not answer. If the server has not recorded
// the call, because it never received it, the record is made here.
func (k *calls) failBuiltin(ctx context.Context, b *backend, pass gate.Pass, err error) front.Reply {
	var wrong failure.Invalid
	var refusal *gate.Refusal
	if reply := k.failures.leaked(pass, err); reply != nil {
		return *reply
	}
	f := failure.Classify(ctx, b.Name, err)
	if f.Cap != "" && !f.Cancel {
		return k.failures.refused(k.gate.Refuse(pass.Act(), f.Cap, gate.CodeUnavailable, 0))
	}
	if errors.As(err, &wrong) {
		f.Word = "invalid"
	}
	var noted gate.Refusal
	if !pass.Recorded() {
		noted = *pass.Refuse("builtin."+f.Word, gate.CodeDenied)
	}
	switch {
	case f.Cancel:
		return front.Reply{None: true}
	case noted.Err != nil:
		return k.failures.refused(&gate.Refusal{Code: gate.CodeUnavailable, Rule: pass.Rule(), Err: noted.Err})
	case wrong.E != nil:
		return front.Reply{Error: wrong.E}
	case errors.As(err, &refusal) && refusal.Code == gate.CodeUnavailable: // the server could not record it and has not failed
		return k.failures.refused(refusal)
	}
	k.log.Warn("a built-in server failed", "server", b.Name, "ref", noted.Ref, "err", err)
	return front.Reply{Error: k.failures.local(f.Code, f.Text, noted.Ref, err)}
}
