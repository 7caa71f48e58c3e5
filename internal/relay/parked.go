package relay

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/content"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/relay/seal"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

const (
	// parkTime is how long a parked call waits for its client to come back.
	parkTime = askTime
	// keepTime is how long the result of a call that was parked can be fetched
	// again, by a client that lost it.
	keepTime = time.Minute
	// gatherTime is how long a question of a call waits for a further one, so that the
	// client gets them at once; gatherMost bounds how many times in a row.
	gatherTime = 50 * time.Millisecond
	gatherMost = 5
	// keptEvents bounds the progress and log messages of a call that are kept while its
	// client answers.
	keptEvents = 64
)

// parked is one call of a modern client to a legacy server, which may ask questions
// while it works. The call runs on its own. The client waits for its result, or gets
// the questions with a handle, and comes back with the answers; then the same call
// goes on.
//
// Invariant: a question belongs to one call, and its answer comes from a request of
// the principal that made that call, with the same method, name and arguments.
type parked struct {
	gate    *gate.Gate
	seal    *seal.Sealer
	parkFor time.Duration
	link    *link
	conn    *liveConn
	id      string // random; only holders of the handle know it
	running running
	to      question.Client
	found   *content.Findings
	ctx     context.Context
	cancel  context.CancelFunc

	mu      sync.Mutex
	x       *front.Exchange     // the request that waits now; nil: none does
	missed  []upstream.Event    // events while no request waited
	open    map[string]*inquiry // questions by key
	last    int                 // number of the last key
	changed chan struct{}       // closed when a question is added or removed, and at the end
	over    bool
	reply   upstream.Reply
	err     error
	expiry  *time.Timer // nil until the call is parked
}

func (p *parked) run(t target, req *upstream.Request) {
	defer p.link.calls.Add(-1)
	reply, err := p.link.callThrough(p.ctx, p.conn, &t, req, p.hear)
	p.conn.ends(&p.running)
	p.mu.Lock()
	p.over, p.reply, p.err = true, reply, err
	left := p.takeOpen()
	p.change()
	p.mu.Unlock()
	for _, q := range left { // unanswered, they would stop the clocks of the connection for ever
		go p.settle(q, question.Unanswered(q.method), "cancelled")
	}
	p.cancel()
}

// change wakes the requests that wait. The caller holds mu.
func (p *parked) change() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// takeOpen removes and returns the open questions. The caller holds mu.
func (p *parked) takeOpen() []*inquiry {
	all := slices.Collect(maps.Values(p.open))
	clear(p.open)
	return all
}

// hear takes one message of the server during the call. Other messages than questions go to
// the request that waits, or are kept for the next one.
func (p *parked) hear(e upstream.Event) {
	if !p.link.asks.screen(p.conn, p.found, &e) {
		return
	}
	if e.ID != nil {
		p.ask(e)
		return
	}
	if e.Method == "notifications/cancelled" {
		p.conn.retract(e.Params)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case protocol.IsChange(e.Method):
		p.link.hub.publish(e)
	case p.x != nil:
		p.give(p.x, e)
	case len(p.missed) < keptEvents:
		e.Params = bytes.Clone(e.Params)
		p.missed = append(p.missed, e)
	}
}

// give passes a message to the request x. Each round of a client is a request with a progress
// token of its own: a call's progress gets that one, and is dropped where there is none.
func (p *parked) give(x *front.Exchange, e upstream.Event) {
	if e.Method == "notifications/progress" {
		token := bytes.Clone(rawjson.GetPath(x.Params, "_meta", "progressToken"))
		if token == nil {
			return
		}
		e.Params = rawjson.Set(e.Params, rawjson.Edit{Key: "progressToken", Value: token})
	}
	p.link.during(p.conn, x, e)
}

// ask enters a question of the server, and has it decided.
func (p *parked) ask(e upstream.Event) {
	l := p.link
	l.b.asking.learn(p.running.asked)
	p.mu.Lock()
	p.last++
	key := fmt.Sprintf("%s-%d", l.b.Name, p.last)
	p.mu.Unlock()
	wanted := p.conn.note(e.ID, question.PooledQuestions, func() { go p.retracted(key) })
	if wanted == nil {
		l.asks.refuseExcess(p.conn, e)
		return
	}
	go p.decide(key, e, wanted)
}

// decide passes a question through the gate, and offers it to the client.
func (p *parked) decide(key string, e upstream.Event, wanted *pendingQuestion) {
	l := p.link
	params, err := e.Params, error(nil)
	if !e.Plain && wire.HoldsQuestions(params) {
		params, err = l.asks.questions.embedded(p.to, params)
	}
	var pass gate.Pass
	if err == nil {
		params, pass, err = l.asks.questions.decide(p.to, e.Method, params)
	}
	if err != nil {
		p.refuse(e, wanted)
		return
	}
	if e.Method == policy.AskElicitation {
		params = rawjson.Set(params, rawjson.Edit{Key: "elicitationId"})
	}
	q := &inquiry{id: e.ID, method: e.Method, params: bytes.Clone(params), pass: pass, wanted: wanted}
	if word := p.enter(key, q); word != "" {
		p.refuse(e, wanted)
		pass.Leave(word, 0)
	}
}

// enter opens a decided question. word is the outcome of one that cannot be put to the client.
func (p *parked) enter(key string, q *inquiry) (word string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.over, p.conn.withdrawn(q.wanted): // retracted finds only what is open
		return "cancelled"
	case len(p.open) >= question.OpenQuestions:
		return "unsupported"
	}
	p.open[key] = q
	p.change()
	return ""
}

func (p *parked) refuse(e upstream.Event, wanted *pendingQuestion) {
	p.conn.settle(e.ID, wanted, func() { p.link.asks.refuse(p.conn, e) })
}

// retracted takes out a question that the server has withdrawn.
func (p *parked) retracted(key string) {
	p.mu.Lock()
	q := p.open[key]
	delete(p.open, key)
	p.change()
	p.mu.Unlock()
	if q != nil {
		p.conn.settle(q.id, q.wanted, nil)
		q.pass.Leave("cancelled", 0)
	}
}

// answer gives the server the client's answers. Answers to questions that are not open are
// ignored: the client may have sent them before.
func (p *parked) answer(responses []byte) {
	for key, raw := range rawjson.Members(responses) {
		p.mu.Lock()
		q := p.open[key]
		delete(p.open, key)
		p.mu.Unlock()
		if q != nil {
			p.settle(q, upstream.Reply{Result: bytes.Clone(raw)}, "ok")
		}
	}
}

// settle answers one question that the caller has taken out of open.
func (p *parked) settle(q *inquiry, reply upstream.Reply, word string) {
	answer := func() {
		if p.conn.alive() {
			p.link.asks.reply(p.conn, q.id, reply)
		}
	}
	if !p.conn.settle(q.id, q.wanted, answer) {
		word = "cancelled"
	}
	q.pass.Leave(word, int64(len(reply.Result)))
}

func (p *parked) waits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open) > 0
}

func (p *parked) attach(x *front.Exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.x = x
	if p.expiry != nil {
		p.expiry.Stop()
	}
	for _, e := range p.missed {
		p.give(x, e)
	}
	p.missed = nil
}

// detach leaves the call without a request, if x is the one that waits.
func (p *parked) detach(x *front.Exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.x != x {
		return
	}
	p.x = nil
	switch {
	case p.expiry == nil: // it was never parked
	case p.over:
		p.expiry.Reset(keepTime)
	default:
		p.expiry.Reset(p.parkFor)
	}
}

// await returns the call's result or its questions. A client that leaves before either ends
// the call.
func (p *parked) await(ctx context.Context, x *front.Exchange, t target) (reply upstream.Reply, questions bool, err error) {
	defer p.detach(x)
	for seen, times := 0, 0; ; {
		p.mu.Lock()
		over, open, changed := p.over, len(p.open), p.changed
		reply, err := p.reply, p.err
		p.mu.Unlock()
		switch {
		case over:
			return reply, false, err
		case open > 0 && (open <= seen || times == gatherMost):
			reply, err := p.required(x, t)
			return reply, true, err
		case open > 0:
			seen, times = open, times+1
			changed = after(gatherTime)
		default:
			seen, times = 0, 0
		}
		select {
		case <-changed:
		case <-ctx.Done():
			p.cancel()
			return upstream.Reply{}, false, ctx.Err()
		}
	}
}

func after(d time.Duration) chan struct{} {
	done := make(chan struct{})
	time.AfterFunc(d, func() { close(done) })
	return done
}

// required makes the result that carries the open questions and the handle with which the
// client comes back.
func (p *parked) required(x *front.Exchange, t target) (upstream.Reply, error) {
	state, err := p.seal.SealParked(p.id, x.Who, t.Target)
	if err != nil {
		return upstream.Reply{}, fmt.Errorf("sealing a parked call: %w", err)
	}
	p.park()
	p.mu.Lock()
	defer p.mu.Unlock()
	requests := rawjson.Empty
	for _, key := range slices.Sorted(maps.Keys(p.open)) {
		q := p.open[key]
		if !p.mayHear(x, q) {
			return upstream.Reply{}, failure.ErrAsksTooMuch
		}
		requests = rawjson.Set(requests, rawjson.Edit{Key: key, Value: q.request(x, p.link.b.Name)})
	}
	return upstream.Reply{Result: rawjson.Set(rawjson.Empty, rawjson.Edit{Key: "resultType", Value: []byte(`"input_required"`)},
		rawjson.Edit{Key: wire.InputRequests, Value: requests}, rawjson.Edit{Key: "requestState", Value: state})}, nil
}

// park adds the call to its server's parked calls, unless it was parked before.
func (p *parked) park() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.expiry != nil {
		return
	}
	p.expiry = time.AfterFunc(p.parkFor, p.expire)
	if k := &p.link.b.parking; k.add(p) {
		go k.trim(p.owner())
	}
}

// owner returns the name of the principal that made the call.
func (p *parked) owner() string { return p.to.X.Who.Name() }

// mayHear reports whether a request may get a question that was decided for an earlier
// request of the call: this one may declare fewer capabilities, and policy may have changed.
func (p *parked) mayHear(x *front.Exchange, q *inquiry) bool {
	return question.Serves(rawjson.GetPath(x.Params, "_meta", wire.MetaCapabilities), q.method, q.params) &&
		p.gate.Allows(policy.Request{Who: x.Who, Action: q.method, Server: p.link.b.Name, SameProgram: x.SameProgram}).Allow
}

// expire ends a parked call whose client did not come back: first its questions, then the
// call.
func (p *parked) expire() {
	p.mu.Lock()
	if p.x != nil {
		p.mu.Unlock()
		return
	}
	left := p.takeOpen()
	p.mu.Unlock()
	p.link.b.parking.remove(p)
	for _, q := range left {
		p.settle(q, question.Unanswered(q.method), "unanswered")
	}
	p.cancel()
}

// giveFindings moves the findings of the call so far to t, for the record of the present
// request.
func (p *parked) giveFindings(t target) {
	if t.found != nil && p.found != nil {
		for _, f := range p.found.Take() {
			t.found.Add(f.Rule, f.Result, f.N)
		}
	}
}
