package relay

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/scan"
)

// contentError ends an act whose message a content rule blocks.
type contentError struct{ rule string }

func (e *contentError) Error() string { return "blocked by " + e.rule }

// Members that are not looked at: names that the relay acts on, and handles
// that mean something to their owner alone.
var (
	requestSkip = []string{"name", "uri", "ref", "cursor", "requestState", "taskId", "_meta"}
	resultSkip  = []string{"resultType", "nextCursor", "requestState", "taskId"}
	eventSkip   = []string{"progressToken", "requestId", "uri", "taskId", "level"}
)

// findings are what was found in the messages of one call, by rule and what
// became of it.
type findings struct {
	mu   sync.Mutex
	seen []finding
}

type finding struct {
	rule, result string
	n            int64
}

func (f *findings) add(rule, result string, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.seen {
		if f.seen[i].rule == rule && f.seen[i].result == result {
			f.seen[i].n += n
			return
		}
	}
	f.seen = append(f.seen, finding{rule, result, n})
}

// take empties the findings.
func (f *findings) take() []finding {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.seen
	f.seen = nil
	return out
}

// look has raw looked at, notes what was found, and returns what may go on.
func (b *backend) look(f *findings, raw []byte, skip []string) ([]byte, error) {
	r := b.Scan.Look(raw, skip...)
	if r.Found == nil {
		return raw, nil
	}
	result := "found"
	switch {
	case r.Blocked:
		result = "blocked"
	case b.Scan.Mode() == scan.Redact:
		result = "redacted"
	}
	for _, c := range r.Found {
		f.add(ruleOf(c.Rule), result, c.N)
	}
	if r.Blocked {
		return nil, &contentError{ruleOf(r.Found[0].Rule)}
	}
	return r.Out, nil
}

func ruleOf(name string) string { return "scan." + name }

// noteFindings records what a call's messages held.
func (r *Relay) noteFindings(x *front.Exchange, t target, pass gate.Pass) {
	for _, f := range t.found.take() {
		r.note(gate.Finding(r.actOn(x, t.Target), pass.Ref, f.rule, f.result, f.n))
	}
}

// scanRequest looks at what goes to a server. Headers that repeat parameters
// are cut as the parameters are, so that they stay equal.
func (l *link) scanRequest(t target, req *upstream.Request) error {
	if l.b.Scan == nil {
		return nil
	}
	params, err := l.b.look(t.found, req.Params, requestSkip)
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
				return &contentError{ruleOf(r.Found[0].Rule)}
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
	if l.b.Scan == nil || isList(t.Method()) {
		return reply, nil
	}
	if reply.Error == nil {
		result, err := l.b.look(t.found, reply.Result, resultSkip)
		return upstream.Reply{Result: result}, err
	}
	e, err := l.b.lookAtError(t.found, reply.Error)
	return upstream.Reply{Error: e}, err
}

func (b *backend) lookAtError(f *findings, e *wire.Error) (*wire.Error, error) {
	raw := e.Raw
	if raw == nil {
		raw = rawjson.AppendQuote(nil, e.Message)
		raw = append(append([]byte(`{"message":`), raw...), '}')
		if e.Data != nil {
			raw = rawjson.Set(raw, rawjson.Edit{Key: "data", Value: e.Data})
		}
	}
	out, err := b.look(f, raw, []string{"code"})
	if err != nil || string(out) == string(raw) {
		return e, err
	}
	message, _ := wire.GetString(out, "message")
	clean := &wire.Error{Code: e.Code, Message: message, Data: wire.Get(out, "data")}
	if e.Raw != nil {
		clean.Raw = out
	}
	return clean, nil
}

// scanEvent looks at what a server says on the way to an answer, or unasked.
// False: it may not go on, and a question has been answered.
func (l *link) scanEvent(c *liveConn, f *findings, e *upstream.Event) bool {
	if l.b.Scan == nil {
		return true
	}
	params, err := l.b.look(f, e.Params, eventSkip)
	if err == nil {
		e.Params, e.Plain = params, e.Plain && same(params, e.Params)
		return true
	}
	if e.ID != nil {
		id := e.ID
		go l.reply(c, id, refusal(e.Method))
	}
	return false
}

// scanUnasked is scanEvent for what belongs to no call.
func (l *link) scanUnasked(c *liveConn, e *upstream.Event) bool {
	if l.b.Scan == nil {
		return true
	}
	var f findings
	ok := l.scanEvent(c, &f, e)
	for _, found := range f.take() {
		l.b.unasked.add(l, e.Method, found)
	}
	return ok
}

// scanAnswer looks at what a client answers a server's question with.
func (l *link) scanAnswer(reply upstream.Reply) upstream.Reply {
	if l.b.Scan == nil || reply.Result == nil {
		return reply
	}
	var f findings
	result, err := l.b.look(&f, reply.Result, nil)
	for _, found := range f.take() {
		l.b.unasked.add(l, "answer", found)
	}
	if err != nil {
		return notAskable
	}
	return upstream.Reply{Result: result}
}

// scanNotice looks at a client's notification; false when it may not go on.
func (l *link) scanNotice(x *front.Exchange, params []byte, ref uint64) ([]byte, bool) {
	if l.b.Scan == nil {
		return params, true
	}
	var f findings
	out, err := l.b.look(&f, params, eventSkip)
	for _, found := range f.take() {
		l.r.note(gate.Finding(l.r.act(x, l.b.Name, x.Method, ""), ref, found.rule, found.result, found.n))
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

func (u *unasked) add(l *link, action string, f finding) {
	key := unaskedKey{action, f.rule, f.result}
	u.mu.Lock()
	defer u.mu.Unlock()
	if t := u.open[key]; t != nil {
		t.n += f.n
		return
	}
	if u.open == nil {
		u.open = make(map[unaskedKey]*unaskedTally)
	}
	u.open[key] = &unaskedTally{link: l, since: time.Now()}
	l.found(key, f.n)
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
	changes := c.changesOf(t.Method())
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
	shown, err := l.listed(ctx, c, t, changes, reply.Result)
	return upstream.Reply{Result: shown, Plain: reply.Plain && same(shown, reply.Result)}, err
}
