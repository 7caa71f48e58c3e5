package relay

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream"
)

// watcher receives the changes of one server for a client. The lock of watchers guards its
// fields.
type watcher struct {
	all     bool              // a session with a connection of its own receives every event
	alone   bool              // the same for a session on a shared connection, while it is the only watcher
	session *front.Session    // of a legacy client; nil: the watcher of a listen
	want    *subscribe.Filter // the lists and the objects whose changes it receives otherwise
	listens bool              // its client can receive changes, so the server has to be listened to
	deliver func(upstream.Event)
	sees    func() bool                              // policy lets its client see the server
	again   func(uri string, with *gate.Charge) bool // decides a subscription that is made again; nil: of a listen
	cause   context.Context                          // of the client's request that waits to be covered; nil: none waits
	refused *subscribe.Filter                        // the value of want with which the server refused a listen for all; nil: none
}

// hearsTask reports whether a session may hear of the change of a legacy server's task.
func (w *watcher) hearsTask(b *backend, e upstream.Event) bool {
	return !minglesTasks(b, front.Legacy) || w.session != nil && b.tasks.has(w.session.Who, rawjson.Get(e.Params, "taskId"))
}

// watchers are the receivers of a server's messages outside of calls over one link. mu is
// locked after that of their hub, which adds and removes them.
type watchers struct {
	mu     sync.Mutex
	all    []*watcher
	joined uint64 // how many there have been
}

func (s *watchers) add(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, w)
	s.joined++
}

func (s *watchers) remove(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(o *watcher) bool { return o == w })
}

// adjust changes what a watcher wants.
func (s *watchers) adjust(w *watcher, f func(*watcher)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(w)
}

// that returns the watchers that match.
func (s *watchers) that(match func(*watcher) bool) (out []*watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.all {
		if match(w) {
			out = append(out, w)
		}
	}
	return out
}

// count returns how many watchers there have been.
func (s *watchers) count() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.joined
}

func (s *watchers) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all) == 0
}

// seen reports whether policy lets a client that can be told see the server.
func (s *watchers) seen() bool {
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	return slices.ContainsFunc(all, func(w *watcher) bool { return w.sees() })
}

// listening returns the watchers for which the server has to be listened to.
func (s *watchers) listening() []*watcher {
	return s.that(func(w *watcher) bool { return w.listens })
}

// wanted reports whether a watcher other than w receives changes of the resource.
func (s *watchers) wanted(uri string, w *watcher) bool {
	return s.that(func(o *watcher) bool { return o != w && o.want.URIs[uri] }) != nil
}

// wants returns what w wants. ok is false after w was removed.
func (s *watchers) wants(w *watcher) (want *subscribe.Filter, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return w.want, slices.Contains(s.all, w)
}

// asks returns the filter of a listen for all watchers.
func (s *watchers) asks() *subscribe.Filter {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := subscribe.Lists()
	for _, w := range s.all {
		if w.listens && w.refused != w.want {
			f.Add(w.want)
		}
	}
	return f
}

// refuse leaves out of later listens what the watchers want beyond a listen that asked for had.
func (s *watchers) refuse(had *subscribe.Filter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.all {
		if !had.Covers(w.want) {
			w.refused = w.want
		}
	}
}

// cause returns the context of a client's request that waits to be covered: the listen
// belongs to its trace.
func (s *watchers) cause() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.all {
		if w.cause != nil {
			return w.cause
		}
	}
	return context.Background()
}

// subscribed returns the resources of each watcher of a legacy session. A filter is never
// changed, so its resources can be read without the lock.
func (s *watchers) subscribed() map[*watcher]map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[*watcher]map[string]bool)
	for _, w := range s.all {
		if w.again != nil && len(w.want.URIs) > 0 {
			out[w] = w.want.URIs
		}
	}
	return out
}

// resources returns the resources with a watcher, in a fixed order.
func (s *watchers) resources() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	uris := make(map[string]bool)
	for _, w := range s.all {
		maps.Copy(uris, w.want.URIs)
	}
	return slices.Sorted(maps.Keys(uris))
}

// only returns the session that alone uses the link; nil: there are several, or none.
func (s *watchers) only() *front.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) != 1 {
		return nil
	}
	return s.all[0].session
}

// sessions returns the legacy sessions that use the link.
func (s *watchers) sessions() (out []*front.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.all {
		if w.session != nil {
			out = append(out, w.session)
		}
	}
	return out
}
