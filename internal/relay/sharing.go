package relay

import (
	"context"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/upstream"
)

// Under instances: auto, sessions of the legacy era share the process of a server if the
// server cannot tell them apart: they belong to one principal and declare the same
// capabilities. A message of the server during a call goes to the session of that call. A
// question that comes while calls of several sessions run has no known addressee: it is
// refused, and from then on each call that may have asked runs on a process without other
// calls.

// shares reports whether a session whose initialize params are init shares a process of the
// server, and the capabilities that the process is started with; nil: none. A session that
// offers roots shares none, because roots differ between sessions.
func (b *backend) shares(init []byte) (caps []byte, ok bool) {
	if b.Instances != "auto" && b.Instances != "" || b.Kind != upstream.KindStdio || b.Builtin != nil || b.PerSession {
		return nil, false
	}
	caps = rawjson.Get(init, "capabilities")
	if rawjson.Get(caps, "roots") != nil {
		return nil, false
	}
	if len(caps) <= len("{}") || b.known.Load()&eraBit(front.Legacy) != 0 {
		return nil, true
	}
	return rawjson.Canonical(caps), true
}

// place gives a session its link to b: one of its own, one shared with sessions that declare
// the same, or the one of its principal.
func (d *binding) place(h *held, b *backend, init func() []byte) {
	who, pooled := d.session.Who, b.Instances == "principal" || b.Instances == "shared"
	params := init()
	caps, shares := b.shares(params)
	switch {
	case pooled:
		h.link = d.sessions.links.pooled(b, who, front.Legacy)
	case shares:
		same := declaration{caps: caps}
		h.link, h.watcher.alone = d.sessions.links.keyed(b, who, front.Legacy, same, same.key(b.poolKey(who, front.Legacy))), true
	default:
		h.watcher.all = true
		h.link = d.sessions.links.new(b, owner{who: who, session: d.session, client: front.Legacy, init: params})
		h.link.opened = func(ctx context.Context, c *liveConn) { d.opened(ctx, b, c) }
	}
}

// outcome takes whether the server has accepted what a session set up with it.
type outcome func(ok bool)

// heardAlready reports whether a shared server already writes the messages of a level,
// because a session has asked for it or for a more verbose one. If it does not, settle has to
// be called with the outcome of telling it.
func (l *link) heardAlready(c *liveConn, params []byte) (settle outcome, already bool) {
	rank := era.Severity(rawjson.Get(params, "level"))
	if l.client != front.Legacy || l.private() || rawjson.GetPath(c.hello, "capabilities", "logging") == nil {
		return func(bool) {}, false
	}
	return func(ok bool) { c.accepted(rank, ok) }, !c.logsFrom(rank)
}

// restoreLevel sets on a new connection that sessions share the most verbose level that one
// of them has set.
func (l *link) restoreLevel(ctx context.Context, c *liveConn) {
	var most *front.Session
	least := len(era.Levels)
	for _, s := range l.hub.watchers.sessions() {
		if rank := era.Severity(bound(s).memory.levelOf()); rank >= 0 && rank < least {
			least, most = rank, s
		}
	}
	if most != nil && c.era == front.Legacy && c.logsFrom(least) {
		c.accepted(least, bound(most).opened(ctx, l.b, c))
	}
}
