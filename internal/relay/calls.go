package relay

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/relay/seal"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// calls takes requests through the gate to their servers and returns the answers.
type calls struct {
	gate        *gate.Gate
	seal        *seal.Sealer
	log         *slog.Logger
	note        func(*audit.Record)
	watch       watch
	parkFor     time.Duration // how long a parked call waits for its client
	acts        *acts
	leaving     *leaving
	failures    *failures
	holding     *holding
	translation *translation
	levels      *levels
	sessions    *sessions
}

// isHeld reports whether a server has done nothing because policy holds the act.
func isHeld(err error) bool {
	var held *gate.Held
	return errors.As(err, &held)
}

// labelled passes what the caller says of its project and its former session to a server that
// is part of the daemon.
func labelled(x *front.Exchange, b *backend, req *upstream.Request) {
	if b.Builtin == nil || x.Namespace == "" && x.Former == "" {
		return
	}
	req.Headers = make(http.Header, 1)
	if x.Namespace != "" {
		req.Headers[protocol.HeaderNamespace] = []string{x.Namespace}
	}
	if x.Former != "" {
		req.Headers[protocol.HeaderFormer] = []string{x.Former}
	}
}

// parkable runs a call whose server may ask questions. questions: the reply holds the
// server's questions instead of its answer.
func (k *calls) parkable(ctx context.Context, l *link, c *liveConn, x *front.Exchange, t target, req *upstream.Request) (reply upstream.Reply, questions bool, err error) {
	p := &parked{gate: k.gate, seal: k.seal, parkFor: k.parkFor, link: l, conn: c, id: rand.Text(), found: t.found,
		open: make(map[string]*inquiry), changed: make(chan struct{})}
	who := *x
	p.to = question.Client{X: front.Exchange{Who: who.Who, SameProgram: who.SameProgram, Delivery: who.Delivery}, Inside: true,
		Caps: bytes.Clone(rawjson.GetPath(x.Params, "_meta", wire.MetaCapabilities))}
	p.ctx, p.cancel = context.WithCancel(l.ctx)
	own := *req
	own.Params = bytes.Clone(req.Params)
	t.Target, _ = t.With(bytes.Clone(t.Params()))
	p.attach(x)
	l.calls.Add(1)
	p.running = running{asked: t.Method() + " " + t.Name(), call: p}
	c.begins(&p.running)
	go p.run(t, &own)
	return p.await(ctx, x, t)
}

// resume continues a parked call with the client's answers. parked is false for a request
// that continues none.
func (k *calls) resume(ctx context.Context, x *front.Exchange, t *target) (reply upstream.Reply, parked bool, err error) {
	if x.Era != front.Modern || !question.MayAsk(t.Method()) {
		return reply, false, nil
	}
	id, err := k.seal.OpenParked(rawjson.Get(t.Params(), "requestState"), x.Who, t.Target)
	if err != nil {
		return reply, false, nil
	}
	p := t.b.parking.find(id)
	if p == nil {
		return reply, true, failure.Invalid{E: failure.State}
	}
	for _, answer := range rawjson.Members(rawjson.Get(t.Params(), "inputResponses")) {
		if len(answer) == 0 || answer[0] != '{' {
			return reply, true, failure.Invalid{E: failure.Params}
		}
	}
	own := *t
	if own.Target, err = p.conn.offers.Settled(ctx, t.Target); err != nil {
		p.cancel()
		return upstream.Reply{}, true, err
	}
	p.attach(x)
	p.answer(rawjson.Get(t.Params(), "inputResponses"))
	reply, questions, err := p.await(ctx, x, *t)
	p.giveFindings(*t)
	if err == nil && !questions {
		reply, err = k.translation.incoming(x, p.link, p.conn, own, reply)
	}
	return reply, true, err
}

// take returns the link for a call and counts the call there. A call that is known to ask
// gets a connection without other calls, because a question there does not name its call.
func (k *calls) take(x *front.Exchange, t *target) *link {
	l := k.sessions.linkFor(x, t.b)
	if l.private() && rawjson.Get(t.Params(), "task") != nil {
		l.tasks.Store(true)
	}
	if l.says.caps != nil && t.b.Kind != "http" && question.MayAsk(t.Method()) && t.b.asking.knows(t.Method()+" "+t.Name()) {
		for n := range maxLanes + 1 {
			lane := k.sessions.links.lane(l, n)
			if lane.calls.CompareAndSwap(0, 1) {
				return lane
			}
		}
	}
	l.calls.Add(1)
	return l
}
