package relay

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/upstream"
)

// listening is one upstream subscriptions/listen, or its equivalent on a legacy
// connection.
type listening struct {
	hub    *hub
	conn   *liveConn
	cause  context.Context // of the client's request that it was opened for, whose trace it continues
	ctx    context.Context
	cancel context.CancelFunc
	before *listening // the listen that this one replaces; nil once it has ended
	tries  int        // how many listens before it failed in a row, or ended soon
	final  bool       // it ends without a successor; guarded by the hub
	// void: it ended without an acknowledgement; the next client makes a new one. Guarded by
	// the hub.
	void bool
	// owes: the clients of the listen before have to be told to look again, also if the server
	// refuses this one.
	owes bool

	asks    *subscribe.Filter // every list, and the objects that watchers named
	acked   chan struct{}     // closed when granted or err is known
	granted subscribe.Filter  // what the server honours; empty when it refused
	err     error             // why it did not reach the server; nil: it did
	ended   chan struct{}     // closed when it is over
	began   time.Time         // when it was opened
}

// steadyTime is how long a connection or a listen is open if its end is no failure of its opening.
const steadyTime = 10 * time.Second

// run keeps the listen open until it ends, and then opens its successor if needed.
func (l *listening) run() {
	h := l.hub
	before := l.before
	l.before = nil
	if before != nil && h.overOnePipe(l.conn) {
		before.stop()
	}
	ok := false
	acknowledge := func(granted []byte) {
		if !ok {
			ok = true
			l.granted = *subscribe.ParseFilter(granted)
			close(l.acked)
			l.replaced(before)
		}
	}
	var err error
	if l.conn.era == front.Modern {
		err = l.hold(acknowledge)
	} else {
		l.follow(acknowledge)
	}
	if !ok {
		if !isRefusal(err) {
			l.err = err
		} else if before != nil {
			h.leaveOut(before)
		}
		h.avoid(l) // before any waiting client sees the end
		close(l.acked)
		if before != nil {
			before.cancel()
		}
		if l.owes && l.err == nil {
			h.lookAgain()
		}
	}
	close(l.ended)
	ended := l.ctx.Err() == nil
	l.cancel() // before reopen, so that a successor that is acknowledged early detects the gap
	if ended {
		h.log.Info("server ended its listen", "server", h.b.Name, "acknowledged", ok, "err", err)
		h.reopen(l, ok, before != nil || l.err != nil)
	}
}

// stop ends a listen and waits, for a bounded time, until the server was told.
func (l *listening) stop() {
	l.cancel()
	select {
	case <-l.ended:
	case <-time.After(2 * time.Second):
	}
}

// replaced ends the listen before this one. If that one was at another process, or had already ended
// while a client listened, changes may have been missed, and all clients are told to list again.
func (l *listening) replaced(before *listening) {
	if before == nil {
		return
	}
	gap := l.owes || before.ctx.Err() != nil && !l.hub.isFinal(before)
	before.cancel()
	if gap {
		l.hub.lookAgain()
	}
}

// leaves reports whether the clients have to be told to look again when a listen on c replaces l:
// that is at another process or session, or l has ended. Modern clients are not told when a listen
// that was refused is replaced, also not those that an earlier one was granted. The caller holds mu
// of the hub.
func (l *listening) leaves(c *liveConn) bool {
	switch {
	case l == nil || l.final:
		return false
	case l.void && (l.conn == c || l.hub.client == front.Modern):
		return l.owes && l.err != nil
	}
	return l.conn != c || l.ctx.Err() != nil
}

// hold keeps a modern listen open.
func (l *listening) hold(acknowledge func([]byte)) error {
	req := upstream.Request{Method: "subscriptions/listen", Params: l.traced(era.OwnParams(l.conn.meta, rawjson.Edit{Key: "notifications", Value: l.asks.JSON()}))}
	_, err := l.conn.conn.Call(l.ctx, &req, func(e upstream.Event) {
		if e.Method == "notifications/subscriptions/acknowledged" {
			acknowledge(rawjson.Get(e.Params, "notifications"))
		}
		l.heard(e)
	})
	return err
}

// traced adds to params the trace of the request that the listen was opened for.
func (l *listening) traced(params []byte) []byte { return l.hub.traces.traced(l.cause, params) }

// heard takes one message of a modern server on the listen.
func (l *listening) heard(e upstream.Event) {
	switch e.Method {
	case "notifications/subscriptions/acknowledged", "notifications/cancelled":
		return
	}
	if protocol.IsChange(e.Method) || l.hub.asks.screened(l.conn, &e) {
		l.hub.publish(e)
	}
}

// follow stands for a listen on a legacy connection: list changes arrive on its standalone
// stream, changes of resources by subscription.
func (l *listening) follow(acknowledge func([]byte)) {
	l.conn.conn.Listen()
	caps := rawjson.Get(l.conn.hello, "capabilities")
	f := subscribe.Filter{URIs: make(map[string]bool)}
	f.Tools = rawjson.IsTrue(rawjson.GetPath(caps, "tools", "listChanged"))
	f.Prompts = rawjson.IsTrue(rawjson.GetPath(caps, "prompts", "listChanged"))
	f.Resources = rawjson.IsTrue(rawjson.GetPath(caps, "resources", "listChanged"))
	if rawjson.IsTrue(rawjson.GetPath(caps, "resources", "subscribe")) {
		for uri := range l.asks.URIs {
			f.URIs[uri] = l.tell("resources/subscribe", uri)
		}
	}
	maps.DeleteFunc(f.URIs, func(_ string, ok bool) bool { return !ok })
	acknowledge(f.JSON())
	select {
	case <-l.ctx.Done():
	case <-l.conn.conn.Done():
		return
	}
	if l.hub.isFinal(l) {
		for uri := range f.URIs {
			if !l.hub.watchers.wanted(uri, nil) { // by a client that came meanwhile
				l.tell("resources/unsubscribe", uri)
			}
		}
	}
}

// tell sends a subscription of a resource, or its end, and reports whether the server
// accepted it.
func (l *listening) tell(method, uri string) bool {
	ctx, cancel := context.WithTimeout(l.hub.ctx, sideTime)
	defer cancel()
	reply, err := l.conn.conn.Call(ctx, &upstream.Request{Method: method, Params: l.traced(subscribe.URIParams(uri))}, nil)
	return err == nil && reply.Error == nil
}

// isRefusal reports whether a listen that ended without an acknowledgement has reached a
// server that refuses it.
func isRefusal(err error) bool {
	return err == nil || errors.Is(err, upstream.ErrProtocol) || errors.Is(err, upstream.ErrTooLarge)
}

// retry opens the successor of a listen, unless no client listens or policy denies the server
// to all that do. False: it has to be tried again.
func (l *listening) retry(tries int) bool {
	all := l.hub.watchers.listening()
	if len(all) == 0 {
		return true
	}
	if !slices.ContainsFunc(all, func(w *watcher) bool { return w.sees() }) {
		return false
	}
	c, err := l.hub.get(l.hub.ctx)
	return l.hub.replace(l, c, err, tries)
}

// next returns the tries of a listen's successor: 0 after one that was open for steadyTime.
func (l *listening) next(acknowledged bool) int {
	if acknowledged && time.Since(l.began) >= steadyTime {
		return 0
	}
	return l.tries + 1
}

// Pauses before a listen or a server is tried again, doubled with each failure.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// avoid makes the next client open a new listen.
func (h *hub) avoid(l *listening) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.void = true
}

// leaveOut leaves out of later listens what a listen that the server has refused asked for beyond
// the one before it, which the server had accepted: one client must not end the changes of others.
func (h *hub) leaveOut(before *listening) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-before.acked:
	default: // it may be refused too
		return
	}
	if !before.void {
		h.watchers.refuse(before.asks)
	}
}

// overOnePipe reports whether a second listen would replace the first one at the server.
func (h *hub) overOnePipe(c *liveConn) bool { return c.era == front.Legacy || h.b.Kind == "stdio" }

var errNoWatcher = errors.New("no client listens any more")

// cover makes the server report what w wants, and returns the part that the server honours.
func (h *hub) cover(ctx context.Context, w *watcher) (*subscribe.Filter, error) {
	h.watchers.adjust(w, func(w *watcher) { w.cause = context.WithoutCancel(ctx) })
	defer h.watchers.adjust(w, func(w *watcher) { w.cause = nil })
	for {
		cur, want, err := h.covering(ctx, w)
		if err != nil {
			return nil, err
		}
		select {
		case <-cur.acked:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if replaced := errors.Is(cur.err, context.Canceled) && h.ctx.Err() == nil; !replaced {
			return want.Both(&cur.granted), cur.err
		}
	}
}

// covering returns a listen that covers w, and what w wants of it.
func (h *hub) covering(ctx context.Context, w *watcher) (*listening, *subscribe.Filter, error) {
	c, err := h.get(ctx)
	if err != nil {
		return nil, nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	want, ok := h.watchers.wants(w)
	if !ok {
		return nil, nil, errNoWatcher
	}
	cur := h.now
	if cur == nil || cur.conn != c || cur.void || !cur.asks.Covers(want) {
		cur = h.start(c, 0)
	}
	return cur, want, nil
}

// opened is called for each new connection and for each client that begins to listen. If a
// client listens, it opens what the server needs for that. Sessions are told to look again if the
// connection is another than before, also those without a stream: they hear of it when they open
// one. A connection that has a successor by now is left alone.
func (h *hub) opened(c *liveConn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if live := h.live.Load(); live != nil && live != c {
		return
	}
	told := false // of another connection, by what listens to it
	switch {
	case h.watchers.listening() == nil:
	case h.sessionsAlone(c):
		c.conn.Listen()
		told = h.guard(c)
	case h.now == nil || h.now.conn != c:
		told = h.start(c, 0).owes
	default:
		told = h.now.owes
		if h.now.void {
			h.start(c, 0)
		}
	}
	if h.met != nil && h.met != c && !told && h.client == front.Legacy && h.b.Builtin == nil {
		go h.lookAgain()
	}
	if !h.watchers.empty() {
		h.met = c
	}
}

// start opens the listen that covers all watchers. tries is that of the new listening. The
// caller holds mu.
func (h *hub) start(c *liveConn, tries int) *listening {
	ctx, cancel := context.WithCancel(h.ctx)
	l := &listening{hub: h, conn: c, cause: h.watchers.cause(), ctx: ctx, cancel: cancel, before: h.last, tries: tries, owes: h.last.leaves(c),
		asks: h.watchers.asks(), acked: make(chan struct{}), ended: make(chan struct{}), began: time.Now()}
	h.now, h.last = l, l
	go l.run()
	return l
}

// reopen opens a listen again that the server ended, as long as a client listens. The
// clients' listens stay open, and the clients are told to list again. A server that refuses
// the first listen is not asked again; otherwise there is a cause for another one. A program
// that ended by itself without an error is not started again before a client needs it.
func (h *hub) reopen(ended *listening, acknowledged, cause bool) {
	tries := ended.next(acknowledged)
	if !acknowledged && !cause && tries == 1 || upstream.Finished(ended.conn.conn) {
		return
	}
	for pause := firstRetry << min(tries, 6); ; pause = min(2*pause, lastRetry) {
		select {
		case <-time.After(min(pause, lastRetry)):
		case <-h.ctx.Done():
			return
		}
		if ended.retry(tries) {
			return
		}
	}
}

// replace starts the successor of a listen that ended. True: it is started, or none is
// needed.
func (h *hub) replace(ended *listening, c *liveConn, err error, tries int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now != ended || h.watchers.listening() == nil {
		return true
	}
	if err != nil {
		return false
	}
	h.start(c, tries)
	return true
}

// isFinal reports whether a listen ended because no client was left.
func (h *hub) isFinal(l *listening) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return l.final
}
