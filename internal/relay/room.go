package relay

import (
	"slices"
	"time"

	"github.com/doorward/doorward/internal/upstream"
)

// leftAfter is how long a session must have had no request, call or stream before its process
// is ended to make room for another. It is long enough to exclude clients that only wait for
// their model.
const leftAfter = time.Minute

// makeRoom is a roomMaker. Of the sessions of the same principal that may give way, it takes the
// one that was left by its client first, and closes its link as after a pause.
func (s *sessions) makeRoom(o *owner, b *backend) (gone <-chan struct{}) {
	before := time.Now().Add(-s.left)
	for d := s.leftFirst(o, b, before); d != nil; d = s.leftFirst(o, b, before) {
		d.mu.Lock()
		if h, _ := d.spare(b, before); h != nil { // no request has come since
			gone = h.link.ctx.Done()               // restLink closes it
			if c := h.link.live.Load(); c != nil { // it has not ended by itself meanwhile
				gone = upstream.Gone(c.conn)
			}
			d.restLink(h)
		}
		d.mu.Unlock()
		if gone != nil {
			return gone
		}
	}
	return nil
}

// leftFirst returns the session of a principal that may give way and has been idle for the
// longest time; nil: none may.
func (s *sessions) leftFirst(o *owner, b *backend, before time.Time) (first *binding) {
	s.bindings.Range(func(k, _ any) bool {
		d := k.(*binding)
		if o.who == nil || d.session == o.session || d.session.Who.Name() != o.who.Name() {
			return true
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if h, since := d.spare(b, before); h != nil {
			first, before = d, since
		}
		return true
	})
	return first
}

// spare returns a link of a session whose process may be ended, and since when the session is
// idle; nil: there is none. The caller holds mu: a request that comes later finds the link
// closed and gets another.
func (u *usage) spare(b *backend, before time.Time) (h *held, since time.Time) {
	since, idle := u.session.IdleSince()
	if !idle || !since.Before(before) {
		return nil, since
	}
	i := slices.IndexFunc(u.links, func(h *held) bool { return (b == nil || h.link.b == b) && h.link.spare(before) })
	if i < 0 {
		return nil, since
	}
	return u.links[i], since
}

// spare reports whether the link has a process of one session that does nothing for it.
func (l *link) spare(before time.Time) bool {
	c := l.live.Load()
	return l.private() && l.b.Kind == upstream.KindStdio && l.b.Builtin == nil && c != nil && c.alive() &&
		l.calls.Load() == 0 && !l.tasks.Load() && l.used.Load() < before.UnixNano()
}
