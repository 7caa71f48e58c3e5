package relay

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// KindBuiltin is the kind of a server that is part of the daemon.
const KindBuiltin = "builtin"

// Builtin is a server that is part of the daemon. It is reached like any other
// server, and in addition it is told who calls.
type Builtin interface {
	// Open begins a connection in the client's era: one for each legacy session,
	// named by its digest, and one with session "" for all requests without a
	// session of one principal and process. on receives unsolicited messages of the
	// server. hello is the InitializeResult or the DiscoverResult. Closing the
	// connection of a session ends that session. Requests of clients carry the pass
	// that let them in, and each subscriptions/listen of a client is one of its
	// own.
	Open(who *principal.Principal, session string, modern bool, on func(upstream.Event)) (conn upstream.Conn, hello []byte)
}

// openBuiltin is connectAs for a server that is part of the daemon.
func (l *link) openBuiltin(era front.Era, on func(upstream.Event)) (upstream.Conn, []byte) {
	session := ""
	if l.session != nil {
		session = l.session.Digest
	}
	return l.b.Builtin.Open(l.who, session, era == front.Modern, on)
}

// callBuiltin takes one request to a server that is part of the daemon. A call
// of a tool is decided here and recorded there, together with what it did: an
// answer without a record is withheld. Of everything else the record is the same
// as for any server.
func (r *Relay) callBuiltin(ctx context.Context, x *front.Exchange, t target) front.Reply {
	if t.Method() != "tools/call" {
		return r.decided(ctx, x, t, r.acts.counted(x, t))
	}
	t, pass, refused := r.holding.admit(ctx, x, t, r.acts.counted(x, t).Deferred())
	if refused != nil {
		return *refused
	}
	defer pass.Leave("ok", 0)
	reply, refused, err := withHeld(ctx, r, x, t, pass)
	switch {
	case refused != nil:
		return *refused
	case err == nil && !pass.Recorded():
		return r.unrecorded(t.b, pass)
	case err == nil && reply.Error != nil:
		return front.Reply{Error: reply.Error, Status: statusFor(t.Method(), reply.Error)}
	case err == nil:
		return front.Reply{Result: reply.Result}
	}
	return r.failBuiltin(ctx, t.b, pass, err)
}

// unrecorded withholds the answer to a call that its server has not recorded.
func (r *Relay) unrecorded(b *backend, pass gate.Pass) front.Reply {
	refusal := pass.Refuse("builtin.unrecorded", gate.CodeUnavailable)
	r.log.Error("a built-in server has not recorded a call; its answer is withheld", "server", b.Name, "ref", refusal.Ref, "err", refusal.Err)
	return r.failures.refused(&gate.Refusal{Code: gate.CodeUnavailable, Ref: refusal.Ref, Rule: pass.Rule(), Err: cmp.Or(refusal.Err, errUnrecorded)})
}

var errUnrecorded = errors.New("the server has made no record of the call")

// failBuiltin is for a call that its server did not answer. One that it has not
// recorded either, since it never came there, is recorded here.
func (r *Relay) failBuiltin(ctx context.Context, b *backend, pass gate.Pass, err error) front.Reply {
	var wrong failure.Invalid
	var refusal *gate.Refusal
	if reply := r.failures.leaked(pass, err); reply != nil {
		return *reply
	}
	f := failure.Classify(ctx, b.Name, err)
	if f.Cap != "" && !f.Cancel {
		return r.failures.refused(r.gate.Refuse(pass.Act(), f.Cap, gate.CodeUnavailable, 0))
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
		return r.failures.refused(&gate.Refusal{Code: gate.CodeUnavailable, Rule: pass.Rule(), Err: noted.Err})
	case wrong.E != nil:
		return front.Reply{Error: wrong.E}
	case errors.As(err, &refusal) && refusal.Code == gate.CodeUnavailable: // it could not be recorded: no failure of its own
		return r.failures.refused(refusal)
	}
	r.log.Warn("a built-in server failed", "server", b.Name, "ref", noted.Ref, "err", err)
	return front.Reply{Error: r.failures.local(f.Code, f.Text, noted.Ref, err)}
}

// labelled passes the caller's project on to a server that is part of the daemon.
func labelled(x *front.Exchange, b *backend, req *upstream.Request) {
	if b.Builtin != nil && x.Namespace != "" {
		req.Headers = http.Header{protocol.HeaderNamespace: {x.Namespace}}
	}
}

// cover has the server listened to for this subscription, as a stage that ends when it
// is.
func (e *ear) cover(ctx context.Context) (*subscribe.Filter, error) {
	cover := e.link.hub.cover
	if e.b.Builtin != nil {
		cover = e.coverBuiltin
	}
	w := e.sub.r.watch.traces()
	inner, m := w.stage(ctx, StageServer, e.pass.Act())
	got, err := cover(inner, e.w)
	w.end(m, serverWord(ctx, e.b.Name, upstream.Reply{}, err))
	return got, err
}

// coverBuiltin is hub.cover for a built-in server. Each listen of a client is one
// listen of that server, under the pass that let the client in: its events are for
// that client and for the tokens of that request, and for no other client of the
// connection. It runs until ctx ends. When the server ends it, the whole
// subscription ends, because the client could not know what it missed, and its
// next listen may carry other tokens.
func (e *ear) coverBuiltin(ctx context.Context, w *watcher) (*subscribe.Filter, error) {
	c, err := e.link.get(ctx)
	if err != nil {
		return nil, err
	}
	req := upstream.Request{Method: "subscriptions/listen", Params: e.sub.r.watch.traced(ctx, era.OwnParams(c.meta, rawjson.Edit{Key: "notifications", Value: w.want.JSON()}))}
	granted, refused := make(chan *subscribe.Filter, 1), make(chan error, 1)
	go func() {
		acked := false
		_, err := c.conn.Call(gate.WithPass(ctx, e.pass), &req, func(ev upstream.Event) {
			switch {
			case ev.Method == "notifications/subscriptions/acknowledged":
				if !acked {
					acked = true
					granted <- subscribe.ParseFilter(wire.Get(ev.Params, "notifications"))
				}
			case protocol.IsChange(ev.Method):
				e.deliver(ev)
			}
		})
		switch {
		case !acked:
			refused <- err
		case ctx.Err() == nil && e.link.ctx.Err() == nil:
			e.sub.r.log.Info("a built-in server ended a listen", "server", e.b.Name, "err", err)
			e.sub.end()
		}
	}()
	select {
	case got := <-granted:
		return w.want.Both(got), nil
	case err := <-refused:
		return new(subscribe.Filter), err // without an error it can tell of nothing
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
