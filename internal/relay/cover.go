package relay

import (
	"context"
	"errors"
	"time"

	"github.com/doorward/doorward/internal/relay/subscribe"
)

var errNoWatcher = errors.New("nobody listens any more")

// cover ensures that the server reports what w wants, and returns the part that
// the server honours.
func (h *hub) cover(ctx context.Context, w *watcher) (*subscribe.Filter, error) {
	h.adjust(w, func(w *watcher) { w.cause = context.WithoutCancel(ctx) })
	defer h.adjust(w, func(w *watcher) { w.cause = nil })
	c, err := h.get(ctx)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	if _, watching := h.watchers[w]; !watching {
		h.mu.Unlock()
		return nil, errNoWatcher
	}
	cur := h.now
	if cur == nil || cur.conn != c || cur.refused || !cur.asks.Covers(w.want) {
		cur = h.start(c, 0)
	}
	want := w.want
	h.mu.Unlock()
	select {
	case <-cur.acked:
		return want.Both(&cur.granted), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// opened is called for each new connection and each client that begins to listen:
// it listens to the server when a client does.
func (h *hub) opened(c *liveConn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.listeners():
	case h.sessionsAlone(c):
		c.conn.Listen()
	case h.now == nil || h.now.conn != c:
		h.start(c, 0)
	}
}

// start opens the listen that covers all watchers; tries counts the ones
// before it that the server did not acknowledge. The caller holds mu.
func (h *hub) start(c *liveConn, tries int) *listening {
	ctx, cancel := context.WithCancel(h.ctx)
	l := &listening{hub: h, conn: c, cause: h.cause(), ctx: ctx, cancel: cancel, before: h.last, tries: tries,
		asks: subscribe.Lists(), acked: make(chan struct{}), ended: make(chan struct{})}
	for w := range h.watchers {
		if w.listens {
			l.asks.Add(w.want)
		}
	}
	h.now, h.last = l, l
	go l.run()
	return l
}

// cause is the context of a client's request that waits to be covered: the server's listen
// is a part of its trace. The caller holds mu.
func (h *hub) cause() context.Context {
	for w := range h.watchers {
		if w.cause != nil {
			return w.cause
		}
	}
	return context.Background()
}

// reopen opens a listen again that the server ended, as long as a client listens.
// The clients' listens stay open, and the clients are told to list again. A
// server that refuses the first listen is not asked again.
func (h *hub) reopen(ended *listening, acknowledged, replaced bool) {
	tries := ended.tries + 1
	if acknowledged {
		tries = 0
	}
	if !acknowledged && !replaced && tries == 1 {
		return
	}
	for pause := firstRetry << min(tries, 6); ; pause *= 2 {
		select {
		case <-time.After(min(pause, lastRetry)):
		case <-h.ctx.Done():
			return
		}
		c, err := h.get(h.ctx)
		if h.replace(ended, c, err, tries) {
			return
		}
	}
}

// replace starts the successor of a listen that ended, and reports whether
// there is nothing left to do about it.
func (h *hub) replace(ended *listening, c *liveConn, err error, tries int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now != ended || !h.listeners() {
		return true
	}
	if err != nil {
		return false
	}
	h.start(c, tries)
	return true
}
