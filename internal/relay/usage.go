package relay

import (
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/upstream"
)

// usage holds the links that a legacy session uses, at most one for each server. Its lock mu
// guards the memory and the stream of the session too, because they change together with the
// links.
type usage struct {
	session *front.Session

	mu     sync.Mutex
	links  []*held
	closed bool // with the session: a link that is made later is closed at once
}

// all returns the links in use.
func (u *usage) all() []*held {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.links)
}

// linked returns the session's hold of its link to a server; nil: it has none. The caller holds mu.
func (u *usage) linked(b *backend) *held {
	if i := slices.IndexFunc(u.links, func(h *held) bool { return h.link.b == b }); i >= 0 {
		return u.links[i]
	}
	return nil
}

// heldOf returns the session's hold of a link; nil: it holds the link no longer.
func (u *usage) heldOf(l *link) *held {
	u.mu.Lock()
	defer u.mu.Unlock()
	if h := u.linked(l.b); h != nil && h.link == l {
		return h
	}
	return nil
}

// held is one link of a session, with the receiver of its events.
type held struct {
	link    *link
	watcher *watcher
	stop    func()
}

// close stops the watcher, and closes the link when it belongs to this session alone.
func (h *held) close() {
	h.stop()
	if h.link.private() {
		h.link.close()
	}
	h.link.used.Store(time.Now().UnixNano())
}

// subscribed returns the resources that the session is subscribed to.
func (h *held) subscribed() (uris map[string]bool) {
	h.link.hub.watchers.adjust(h.watcher, func(w *watcher) { uris = w.want.URIs })
	return uris
}

// doubt tells the client that resources which it is subscribed to may have changed.
func (h *held) doubt(uris []string) {
	for _, uri := range uris {
		h.watcher.deliver(upstream.Event{Method: protocol.ResourceUpdated, Params: subscribe.URIParams(uri)})
	}
}
