package agent

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/builtin"
)

// inboxURI is the URI of the only resource. It is the same for all callers: the
// connection decides which mailbox it means, so that there is nothing to guess.
const inboxURI = "agent://inbox"

var (
	resourceList = []byte(`[{"uri":"` + inboxURI + `","name":"inbox","title":"Your mailbox","description":"Counts of your mailbox and pointers to what is new in it, without any text.","mimeType":"application/json"}]`)
	errNoURI     = &wire.Error{Code: -32602, Message: "Resource not found"}
)

// mayRead reports whether the caller may read its mailbox now. It leaves no record,
// because the request has one.
func (s *Server) mayRead(who *principal.Principal, same bool) bool {
	return s.o.Gate.Allows(policy.Request{Who: who, Action: actionRead, SameProgram: same}).Allow
}

// session returns the session of the connection, outside of a tool call.
func (c *conn) session() *session {
	return c.s.sessions.of(c.who, c.digest, asStream)
}

// inboxState is the content of the resource: no text of a message, but the names of
// senders.
type inboxState struct {
	Registered bool      `json:"registered"`
	Pending    int       `json:"pending"`
	Held       int       `json:"held"`
	Newest     int64     `json:"newest_seq"`
	Notices    int       `json:"notices"`
	Messages   []pointer `json:"messages"`
}

// pointer describes a waiting message without its text. From is a name, which is safe
// because of its pattern.
type pointer struct {
	MessageID string `json:"message_id"`
	Seq       int64  `json:"seq"`
	From      string `json:"from"`
	Lineage   string `json:"lineage"`
	Kind      string `json:"kind"`
	SentAt    string `json:"sent_at"`
}

// read serves resources/read. The relay has recorded it.
func (c *conn) read(ctx context.Context, r *upstream.Request) (upstream.Reply, error) {
	pass, ok := gate.PassOf(ctx)
	if !ok || pass.Act().Who.Key() != c.who.Key() || pass.Act().Session != c.digest {
		return upstream.Reply{Error: errNoPass}, nil
	}
	if uri, _ := rawjson.GetString(r.Params, "uri"); uri != inboxURI {
		return upstream.Reply{Error: errNoURI}, nil
	}
	if !c.s.mayRead(c.who, pass.Act().SameProgram) {
		return upstream.Reply{Error: errNoPass}, nil
	}
	state, err := c.s.look(ctx, c.session())
	if err != nil {
		return upstream.Reply{}, err
	}
	text, err := marshal(state)
	if err != nil {
		return upstream.Reply{}, err
	}
	content := rawjson.Set(nil, rawjson.Edit{Key: "uri", Value: []byte(`"` + inboxURI + `"`)},
		rawjson.Edit{Key: "mimeType", Value: []byte(`"application/json"`)}, rawjson.Edit{Key: "text", Value: rawjson.AppendQuote(nil, string(text))})
	out := rawjson.Set(nil, rawjson.Edit{Key: "contents", Value: append(append([]byte{'['}, content...), ']')})
	if c.modern {
		out = rawjson.Set(out, builtin.Hints("0")...)
	}
	return upstream.Reply{Result: out}, nil
}

// look reads a session's mailbox for the resource. Without a peer it is empty.
func (s *Server) look(ctx context.Context, on *session) (inboxState, error) {
	state := inboxState{Messages: []pointer{}}
	before := names(s.sessions, on)
	p, n, waiting, err := s.o.Book.Look(ctx, s.sessions.ownerOf(on))
	if noPeer(err) {
		s.lose(on, before)
		return state, nil
	}
	if err != nil {
		return state, err
	}
	s.bind(on, p)
	state.Registered, state.Pending, state.Held, state.Newest, state.Notices = true, n.Pending, n.Held, n.Newest, len(n.Notices)
	for _, m := range waiting {
		state.Messages = append(state.Messages, pointer{MessageID: m.MessageID, Seq: m.Seq, From: m.From, Lineage: m.Lineage,
			Kind: m.Kind, SentAt: stamp(m.SentAt)})
	}
	return state, nil
}

// bind notes the peer of a session, and wakes the streams of the session if it is another
// one: they wait for mail of the peer before. Any request may be the first that sees the
// peer of a register that is still in progress.
func (s *Server) bind(on *session, p mail.Peer) {
	if s.sessions.bind(on, p) {
		s.signals.signal(topicSession(on.owner.Session))
	}
}

// lose is bind for a read that found no peer. before is what names returned before the read.
func (s *Server) lose(on *session, before int) {
	if lose(s.sessions, on, before) {
		s.signals.signal(topicSession(on.owner.Session))
	}
}

// subscribe begins or ends the push of a legacy session. Repetitions have no effect.
func (c *conn) subscribe(ctx context.Context, r *upstream.Request) upstream.Reply {
	if uri, _ := rawjson.GetString(r.Params, "uri"); uri != inboxURI {
		return upstream.Reply{Error: errNoURI}
	}
	pass, _ := gate.PassOf(ctx)
	may := func() bool { return c.s.mayRead(c.who, pass.Act().SameProgram) }
	if r.Method == "resources/subscribe" && !may() {
		return upstream.Reply{Error: errNoPass}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.Method == "resources/unsubscribe" && c.push != nil:
		c.push()
		c.push = nil
	case r.Method == "resources/subscribe" && c.push == nil:
		ctx, cancel := context.WithCancel(c.Context)
		c.push = cancel
		on := c.session()
		leave := c.s.sessions.stream(on, false)
		go func() {
			defer leave()
			c.s.pushTo(ctx, on, may, func() { c.on(updated(nil)) })
		}()
	}
	return upstream.Reply{Result: []byte("{}")}
}

// listens numbers the listens, because a subscription's id is the server's, not the
// client's.
var listens atomic.Int64

// listen serves subscriptions/listen until ctx ends: first the acknowledgement, then
// updates for mail that is there already and for new mail.
func (c *conn) listen(ctx context.Context, r *upstream.Request, on func(upstream.Event)) (upstream.Reply, error) {
	if !c.modern {
		return upstream.Reply{Error: errNoMethod}, nil
	}
	granted, wanted := []byte("{}"), false
	for uri := range rawjson.Elements(rawjson.GetPath(r.Params, "notifications", "resourceSubscriptions")) {
		if text, _ := wire.Text(uri); text == inboxURI && c.mayListen() {
			granted, wanted = []byte(`{"resourceSubscriptions":["`+inboxURI+`"]}`), true
		}
	}
	id := wire.IntID(listens.Add(1))
	tag := rawjson.Set(nil, rawjson.Edit{Key: wire.MetaSubscription, Value: id})
	on(upstream.Event{Method: "notifications/subscriptions/acknowledged",
		Params: rawjson.Set(nil, rawjson.Edit{Key: "notifications", Value: granted}, rawjson.Edit{Key: "_meta", Value: tag})})
	ctx, cancel := c.With(ctx)
	defer cancel()
	if wanted {
		s := c.session()
		leave := c.s.sessions.stream(s, true)
		c.s.pushTo(ctx, s, c.mayListen, func() { on(updated(tag)) })
		leave()
	}
	<-ctx.Done()
	if c.Context.Err() != nil {
		return upstream.Reply{Result: rawjson.Set([]byte(`{"resultType":"complete"}`), rawjson.Edit{Key: "_meta", Value: tag})}, nil
	}
	return upstream.Reply{}, ctx.Err()
}

// mayListen is mayRead for a connection without a session, whose program is never known to be the same.
func (c *conn) mayListen() bool { return c.s.mayRead(c.who, false) }

// updated returns the notification that the inbox has changed; meta names the listen, if
// any.
func updated(meta []byte) upstream.Event {
	return upstream.Event{Method: "notifications/resources/updated",
		Params: rawjson.Set(nil, rawjson.Edit{Key: "uri", Value: []byte(`"` + inboxURI + `"`)}, rawjson.Edit{Key: "_meta", Value: meta})}
}

// pusher wakes the client of one stream.
type pusher struct {
	s    *Server
	on   *session
	may  func() bool // whether policy lets the session read now
	tell func()

	peer        string // whose mailbox was reported last
	epoch       int64  // of that peer
	begun       bool   // the state at the begin of the stream, or of the epoch, was reported
	seq, notice int64  // the newest reported that is still unread
	gives       int    // the answers of inbox that seq takes into account
	last        time.Time
}

// pushTo wakes the client of a stream until ctx ends. It is level-triggered: it
// looks first, so that mail from before the stream is reported as well. A waiting
// call owns new mail; mail that is still unread a while later is reported here
// after all. The stream reports the mail of the session as which its client acts, which
// may become that of a sibling.
func (s *Server) pushTo(ctx context.Context, of *session, may func() bool, tell func()) {
	p := &pusher{s: s, may: may, tell: tell}
	for ctx.Err() == nil {
		on := actsAs(s.sessions, of)
		peer := s.sessions.peerOf(on)
		topics := []string{topicSession(of.owner.Session)}
		if on != of {
			topics = append(topics, topicSession(on.owner.Session))
		}
		if peer != "" {
			topics = append(topics, mail.TopicMailbox(peer))
		}
		wake, leave := s.signals.join(topics...)
		p.on = on
		again := p.look(ctx)
		if actsAs(s.sessions, of) == on && s.sessions.peerOf(on) == peer { // else it has another mailbox to wait for
			pause(ctx, wake, again)
		}
		leave()
	}
}

// look reports news, and returns when to look again without a signal; 0: only after a
// signal.
func (p *pusher) look(ctx context.Context) time.Duration {
	if !p.may() {
		return 0 // PolicyChanged is a signal
	}
	before := names(p.s.sessions, p.on)
	gives := givenTo(p.s.sessions, p.on).gives // what is given after the look counts at the next one
	me, n, waiting, err := p.s.o.Book.Look(ctx, p.s.sessions.ownerOf(p.on))
	switch {
	case noPeer(err):
		p.s.lose(p.on, before)
		return 0
	case err != nil:
		if ctx.Err() == nil {
			p.s.log.Warn("a mailbox could not be read", "err", err)
		}
		return p.s.minGap
	}
	p.s.bind(p.on, me)
	p.forget(me, gives)
	seq, notice := newest(n, waiting)
	p.seq, p.notice = min(p.seq, seq), min(p.notice, notice)
	news := seq > p.seq || notice > p.notice
	if !p.begun { // a new stream reports all that is not confirmed
		news = news || n.Pending > 0
	}
	if !news {
		p.begun = true
		return 0
	}
	if p.s.sessions.waits(p.on) {
		return p.s.minGap
	}
	if gap := p.s.minGap - time.Since(p.last); !p.last.IsZero() && gap > 0 {
		return gap
	}
	p.tell()
	p.begun, p.seq, p.notice, p.last = true, seq, notice, time.Now()
	return 0
}

// forget drops what was reported of another mailbox or in another epoch, and messages that an
// inbox has given since: they are reported again when they return to the queue. Giving them
// signals nothing, so the stream need not have looked meanwhile.
func (p *pusher) forget(me mail.Peer, gives int) {
	if me.ID != p.peer || me.Epoch != p.epoch {
		p.peer, p.epoch, p.begun, p.seq, p.notice = me.ID, me.Epoch, false, 0, 0
	}
	if gives != p.gives {
		p.gives, p.seq = gives, 0
	}
}

// newest returns the seq of the newest unread message and the number of the newest
// notice; 0: none.
func newest(n mail.Counts, waiting []mail.Pointer) (seq, notice int64) {
	for _, m := range waiting {
		seq = max(seq, m.Seq)
	}
	if len(n.Notices) > 0 {
		notice = n.Receipt.Notice
	}
	return seq, notice
}

// pause waits for a signal, for d if it is not 0, or for the end of ctx.
func pause(ctx context.Context, wake <-chan struct{}, d time.Duration) {
	var timer <-chan time.Time
	if d > 0 {
		timer = time.After(d)
	}
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer:
	}
}
