package relay

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/content"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/scan"
)

// noteFindings records what a call's messages held.
func (r *Relay) noteFindings(x *front.Exchange, t target, pass gate.Pass) {
	for _, f := range t.found.Take() {
		r.note(gate.Finding(r.actOn(x, t.Target), pass.Ref, f.Rule, f.Result, f.N))
	}
}

// scanRequest looks at what goes to a server. Headers that repeat parameters
// are cut as the parameters are, so that they stay equal.
func (l *link) scanRequest(t target, req *upstream.Request) error {
	if l.b.Scan == nil {
		return nil
	}
	params, err := content.Look(l.b.Scan, t.found, req.Params, content.RequestSkip)
	if err != nil {
		return err
	}
	req.Params = params
	if l.b.Scan.Mode() == scan.Monitor {
		return nil
	}
	for key, values := range req.Headers {
		values = slices.Clone(values)
		for i, v := range values {
			text, err := protocol.DecodeHeader(v)
			if err != nil {
				text = v
			}
			clean, r := l.b.Scan.Text(text)
			if r.Blocked {
				return &failure.Content{Rule: content.Rule(r.Found[0].Rule)}
			}
			if r.Found != nil {
				values[i] = protocol.EncodeHeader(clean)
			}
		}
		req.Headers[key] = values
	}
	return nil
}

// scanReply looks at what a server answered. Lists are not results: they are
// pinned and cleaned, and cutting names out of them would break calls.
func (l *link) scanReply(t target, reply upstream.Reply) (upstream.Reply, error) {
	if l.b.Scan == nil || listing.Is(t.Method()) {
		return reply, nil
	}
	if reply.Error == nil {
		result, err := content.Look(l.b.Scan, t.found, reply.Result, content.ResultSkip)
		return upstream.Reply{Result: result}, err
	}
	e, err := content.LookAtError(l.b.Scan, t.found, reply.Error)
	return upstream.Reply{Error: e}, err
}

// scanEvent looks at what a server says on the way to an answer, or unasked.
// False: it may not go on, and a question has been answered.
func (l *link) scanEvent(c *liveConn, f *content.Findings, e *upstream.Event) bool {
	if l.b.Scan == nil {
		return true
	}
	params, err := content.Look(l.b.Scan, f, e.Params, content.EventSkip)
	if err == nil {
		e.Params, e.Plain = params, e.Plain && rawjson.Same(params, e.Params)
		return true
	}
	if e.ID != nil {
		id := e.ID
		go l.reply(c, id, question.Refusal(e.Method))
	}
	return false
}

// scanUnasked is scanEvent for what belongs to no call.
func (l *link) scanUnasked(c *liveConn, e *upstream.Event) bool {
	if l.b.Scan == nil {
		return true
	}
	var f content.Findings
	ok := l.scanEvent(c, &f, e)
	for _, found := range f.Take() {
		l.b.unasked.add(l, e.Method, found)
	}
	return ok
}

// scanAnswer looks at what a client answers a server's question with.
func (l *link) scanAnswer(reply upstream.Reply) upstream.Reply {
	if l.b.Scan == nil || reply.Result == nil {
		return reply
	}
	var f content.Findings
	result, err := content.Look(l.b.Scan, &f, reply.Result, nil)
	for _, found := range f.Take() {
		l.b.unasked.add(l, "answer", found)
	}
	if err != nil {
		return question.NotAskable
	}
	return upstream.Reply{Result: result}
}

// scanNotice looks at a client's notification; false when it may not go on.
func (l *link) scanNotice(x *front.Exchange, params []byte, ref uint64) ([]byte, bool) {
	if l.b.Scan == nil {
		return params, true
	}
	var f content.Findings
	out, err := content.Look(l.b.Scan, &f, params, content.EventSkip)
	for _, found := range f.Take() {
		l.r.note(gate.Finding(l.r.act(x, l.b.Name, x.Method, ""), ref, found.Rule, found.Result, found.N))
	}
	return out, err == nil
}

// unasked summarises findings outside of calls, so that a talkative server does
// not fill the record: the first of a kind is recorded at once, further ones once
// a minute.
type unasked struct {
	mu   sync.Mutex
	open map[unaskedKey]*unaskedTally
}

type unaskedKey struct{ action, rule, result string }

type unaskedTally struct {
	link  *link
	since time.Time
	n     int64
}

const sumTime = time.Minute

func (u *unasked) add(l *link, action string, f content.Finding) {
	key := unaskedKey{action, f.Rule, f.Result}
	u.mu.Lock()
	defer u.mu.Unlock()
	if t := u.open[key]; t != nil {
		t.n += f.N
		return
	}
	if u.open == nil {
		u.open = make(map[unaskedKey]*unaskedTally)
	}
	u.open[key] = &unaskedTally{link: l, since: time.Now()}
	l.found(key, f.N)
}

// flush records what has been summed up since before.
func (u *unasked) flush(before time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for key, t := range u.open {
		if t.since.After(before) {
			continue
		}
		delete(u.open, key)
		if t.n > 0 {
			t.link.found(key, t.n)
		}
	}
}

func (l *link) found(key unaskedKey, n int64) {
	who, session := l.askedOf(nil)
	x := front.Exchange{Who: who, Session: session}
	l.r.note(gate.Finding(l.r.act(&x, l.b.Name, key.action, ""), 0, key.rule, key.result, n))
}

// callWith sends one request, with everything looked at that content rules are
// for.
func (l *link) callWith(ctx context.Context, c *liveConn, x *front.Exchange, t target, req *upstream.Request) (upstream.Reply, error) {
	return l.callThrough(ctx, c, t, req, func(e upstream.Event) { l.during(c, x, e) })
}

// callThrough is callWith with a receiver of its own for what the server says during
// the call.
func (l *link) callThrough(ctx context.Context, c *liveConn, t target, req *upstream.Request, hear func(upstream.Event)) (upstream.Reply, error) {
	if err := l.scanRequest(t, req); err != nil {
		return upstream.Reply{}, err
	}
	changes := c.offers.Changes(t.Method())
	reply, err := c.conn.Call(ctx, req, func(e upstream.Event) {
		if l.scanEvent(c, t.found, &e) {
			hear(e)
		}
	})
	if err != nil {
		return reply, err
	}
	if reply, err = l.scanReply(t, reply); err != nil || reply.Error != nil {
		return reply, err
	}
	shown, err := c.offers.Shown(ctx, t.Target, changes, reply.Result)
	return upstream.Reply{Result: shown, Plain: reply.Plain && rawjson.Same(shown, reply.Result)}, err
}
