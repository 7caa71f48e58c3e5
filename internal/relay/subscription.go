package relay

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/seal"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// queued bounds the different events that wait for a slow client, besides the changes that
// its listen was granted.
const queued = 256

// listens serves the listens of modern clients.
type listens struct {
	gate     *gate.Gate
	seal     *seal.Sealer
	log      *slog.Logger
	watch    watch
	closing  context.Context
	audience *subscribe.Audience
	open     sync.Map // *subscription
	acts     *acts
	sight    *sight
	leaving  *leaving
	failures *failures
	links    *links
}

// subscription is one client's subscriptions/listen. Events wait in a short queue until the
// exchange's own goroutine writes them. A change that already waits is not queued twice,
// because it says only that something changed.
type subscription struct {
	from    *listens
	x       *front.Exchange
	servers []*backend        // that its ears listen to
	want    *subscribe.Filter // in the client's names
	caps    []byte            // of the client
	wake    chan struct{}
	end     func() // ends the subscription, so that its client begins again

	mu      sync.Mutex
	wait    []upstream.Event
	cut     bool              // an event was dropped
	granted *subscribe.Filter // in the client's names, until acked
	acked   bool
}

// put queues an event. If many wait, the change of a sub-resource becomes that of the whole.
func (s *subscription) put(e upstream.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	named := protocol.IsChange(e.Method) && s.granted.Names(e.Method, e.Params) // these are few, and each waits once
	if !named && len(s.wait) >= queued+len(s.granted.URIs) {
		uri, _ := rawjson.GetString(e.Params, "uri")
		whole := s.granted.Whole(uri)
		if e.Method != protocol.ResourceUpdated || whole == "" {
			s.drop()
			return
		}
		e.Params = subscribe.URIParams(whole)
	}
	if s.waits(e) {
		return
	}
	s.wait = append(s.wait, e)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// waits reports whether a change waits already. The caller holds mu.
func (s *subscription) waits(e upstream.Event) bool {
	return protocol.IsChange(e.Method) && slices.ContainsFunc(s.wait, func(w upstream.Event) bool {
		return w.Method == e.Method && string(rawjson.Get(w.Params, "uri")) == string(rawjson.Get(e.Params, "uri"))
	})
}

// drop notes that an event was dropped. The caller holds mu.
func (s *subscription) drop() {
	if !s.cut {
		s.from.log.Warn("a client reads its changes too slowly: some are dropped", "principal", s.x.Who.Name())
	}
	s.cut = true
}

func (s *subscription) take() []upstream.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.wait
	s.wait = nil
	return out
}

// tag puts the id of the client's own listen request on a notification.
func (s *subscription) tag(params []byte) []byte {
	return rawjson.SetIn(params, "_meta", rawjson.Edit{Key: wire.MetaSubscription, Value: s.x.ID})
}

// announce queues a change for a modern subscription, if it was granted.
func (s *subscription) announce(method string) {
	s.mu.Lock()
	granted := s.granted.Wants(method, nil)
	s.mu.Unlock()
	if granted {
		s.put(upstream.Event{Method: method})
	}
}

// renew ends a listen on the aggregate if its client may use other servers by now: one that
// was added or replaced has no ear. The client begins again, and then hears these too. A
// resource may change until then, so the client is told that each of them may have changed.
func (s *subscription) renew() {
	if s.x.Server != "" || slices.Equal(s.servers, s.from.sight.servers(s.x.Who)) {
		return
	}
	s.mu.Lock()
	uris := slices.Sorted(maps.Keys(s.granted.URIs))
	s.mu.Unlock()
	for _, uri := range uris {
		s.put(upstream.Event{Method: protocol.ResourceUpdated, Params: subscribe.URIParams(uri)})
	}
	s.end()
}

// stream acknowledges the listen and writes events until the client leaves or the server is
// gone. In the latter case it tells the client and answers the listen (Cancellation;
// Subscriptions, "Graceful Closure").
func (s *subscription) stream(ctx context.Context, gone <-chan struct{}) front.Reply {
	s.mu.Lock()
	s.acked = true
	ack := append([]byte(`{"notifications":`), s.granted.JSON()...)
	s.mu.Unlock()
	s.x.StartStream()
	s.x.Notify("notifications/subscriptions/acknowledged", s.tag(append(ack, '}')))
	write := func() {
		for _, e := range s.take() {
			s.x.Notify(e.Method, s.tag(e.Params))
		}
	}
	for {
		select {
		case <-s.wake:
			write()
		case <-ctx.Done():
			return front.Reply{None: true}
		case <-gone:
			write() // the events from before the end
			params := append([]byte(`{"requestId":`), s.x.ID...)
			s.x.Notify("notifications/cancelled", s.tag(append(params, '}')))
			return front.Reply{Result: s.tag([]byte(`{"resultType":"complete"}`))}
		}
	}
}
