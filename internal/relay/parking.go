package relay

import (
	"context"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

const (
	// maxParked bounds the parked calls of one principal on one server. The oldest
	// one expires when there are more.
	maxParked = 256
	// maxLanes bounds the further connections for calls that ask, where a question
	// does not say whose it is.
	maxLanes = 8
	// maxAsking bounds what is remembered of a server's tools.
	maxAsking = 1000
)

// parking is the parked calls of one server, oldest first.
type parking struct {
	mu    sync.Mutex
	calls []*parked
}

// add enters a call when it is parked for the first time.
func (k *parking) add(p *parked) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p.mu.Lock()
	known := p.expiry != nil
	if !known {
		p.expiry = time.AfterFunc(p.link.r.parkFor, p.expire)
	}
	p.mu.Unlock()
	if known {
		return
	}
	k.calls = append(k.calls, p)
	var oldest *parked
	n := 0
	for _, q := range k.calls {
		if q.to.X.Who.Name() == p.to.X.Who.Name() {
			if n++; oldest == nil {
				oldest = q
			}
		}
	}
	if n > maxParked {
		go oldest.expire()
	}
}

func (k *parking) remove(p *parked) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, q := range k.calls {
		if q == p {
			k.calls = append(k.calls[:i], k.calls[i+1:]...)
			return
		}
	}
}

func (k *parking) find(id string) *parked {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.calls {
		if p.id == id {
			return p
		}
	}
	return nil
}

// resume continues a parked call with the client's answers. False: the request is
// not about one.
func (r *Relay) resume(ctx context.Context, x *front.Exchange, t target) (reply upstream.Reply, parked bool, err error) {
	state := wire.Get(t.Params(), "requestState")
	if state == nil || x.Era != front.Modern || !question.MayAsk(t.Method()) {
		return reply, false, nil
	}
	id, err := r.seal.OpenParked(state, x.Who, t.Target)
	if err != nil {
		return reply, false, nil
	}
	p := t.b.parking.find(id)
	if p == nil {
		return reply, true, failure.Invalid{E: failure.State}
	}
	for _, answer := range wire.Members(wire.Get(t.Params(), "inputResponses")) {
		if len(answer) == 0 || answer[0] != '{' {
			return reply, true, failure.Invalid{E: failure.Params}
		}
	}
	reply, err = p.resume(ctx, x, t)
	return reply, true, err
}

func (p *parked) resume(ctx context.Context, x *front.Exchange, t target) (upstream.Reply, error) {
	l := p.link
	again, err := t, error(nil)
	again.Target, err = p.conn.offers.Settled(ctx, t.Target)
	if err != nil {
		p.cancel()
		return upstream.Reply{}, err
	}
	p.attach(x)
	p.answer(wire.Get(t.Params(), "inputResponses"))
	reply, questions, err := p.await(ctx, x, t)
	if t.found != nil && p.found != nil {
		for _, f := range p.found.Take() {
			t.found.Add(f.Rule, f.Result, f.N)
		}
	}
	if err != nil || questions {
		return reply, err
	}
	return l.r.translation.incoming(x, l, p.conn, again, reply)
}

// askers is what is known of a server's tools, prompts and resources: which of them
// ask, or may have asked.
type askers struct {
	mu    sync.Mutex
	known map[string]bool
}

func (a *askers) learn(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil {
		a.known = make(map[string]bool)
	}
	if len(a.known) < maxAsking {
		a.known[name] = true
	}
}

func (a *askers) knows(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known[name]
}

// take returns the link for a call and counts the call there. A call that is known
// to ask gets a connection on which no other call is, where a question does not say
// whose it is.
func (r *Relay) take(x *front.Exchange, t target) *link {
	l := r.linkFor(x, t.b)
	if l.says.caps != nil && t.b.Kind != "http" && question.MayAsk(t.Method()) && t.b.asking.knows(t.Method()+" "+t.Name()) {
		for n := range maxLanes + 1 {
			lane := t.b.lane(l, n)
			if lane.calls.CompareAndSwap(0, 1) {
				return lane
			}
		}
	}
	l.calls.Add(1)
	return l
}

// declared is what the connection of a modern client to b declares. Connections that
// principals share declare nothing: a question could not be put to one of them. A stdio
// server gets the client's clientInfo only if the client declares capabilities, because
// these need a process of their own anyway; the name alone starts no further process.
func declared(r *Relay, x *front.Exchange, b *backend) (d declaration) {
	if b.Builtin != nil || b.Instances == "shared" || b.Protocol == "modern" || b.spoken.Load()&eraBit(front.Modern) != 0 {
		return d
	}
	if caps := wire.GetPath(x.Params, "_meta", wire.MetaCapabilities); len(caps) > len("{}") {
		if caps = r.translation.carried(x, b, caps); string(caps) != "{}" {
			d.caps = rawjson.Canonical(caps)
		}
	}
	if info := wire.GetPath(x.Params, "_meta", wire.MetaClientInfo); len(info) <= maxInfo && (d.caps != nil || b.Kind != upstream.KindStdio) {
		d.info = rawjson.Canonical(info)
	}
	return d
}

// modernLink is the connection of a modern client to b. What it declares was searched
// as all that leaves is, before it was opened.
func modernLink(r *Relay, x *front.Exchange, b *backend) *link {
	d, plain := declared(r, x, b), b.poolKey(x.Who, front.Modern)
	if l := b.have(d.key(plain)); l != nil {
		return l
	}
	if d.info != nil && b.full() {
		d.info = nil
	}
	if d.empty() || !r.leaving.declares(x, b, d) {
		return b.pooled(r, x.Who, front.Modern)
	}
	return b.keyed(r, x.Who, front.Modern, d, d.key(plain))
}

// lane is a further connection beside l; 0 is l itself.
func (b *backend) lane(l *link, n int) *link {
	if n == 0 {
		return l
	}
	return b.keyed(l.r, l.who, l.client, l.says, l.key+"\x00"+string('0'+rune(n)))
}

// adopt makes a connection the one of all clients of its principal, when its server
// turned out to be modern: there each request says its client's capabilities.
func (b *backend) adopt(l *link) {
	if l.says.empty() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	plain := b.poolKey(l.who, l.client)
	if b.pool[plain] == nil && b.pool[l.key] == l {
		delete(b.pool, l.key)
		b.pool[plain] = l
	}
}
