package relay

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
)

// stubborn makes a modern server that refuses each listen from the time that the result is set.
func stubborn(s *script) *atomic.Bool {
	refuses := new(atomic.Bool)
	s.onListen = func(q *query) string {
		if refuses.Load() {
			return ""
		}
		return string(rawjson.Get(q.Params, "notifications"))
	}
	return refuses
}

// heard opens a stream for the changes of all lists.
func (h *house) heard(client, path string) *reply {
	if client == "modern" {
		stream, _ := h.modern(path, "uid:1000").subscribe(everyList)
		return stream
	}
	c := h.legacy(path, "uid:1000", `{}`)
	c.call("tools/list", `{}`)
	return c.listen()
}

// A client whose listen a modern server had granted is told to look again when the process or
// session that replaces the server refuses each listen. Further refusals tell it nothing.
func TestAReplacementThatRefusesItsListenIsAnnounced(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		for _, client := range eachEra {
			for path := range eachPath {
				t.Run(fmt.Sprint(kind, " ", client, path), func(t *testing.T) {
					t.Parallel()
					s := start(t, "s", "modern")
					refuses := stubborn(s)
					h := build(t, []Server{s.server()})
					stream := h.heard(client, path)
					eventually(t, "the server listens", func() bool { return s.listening() == 1 })
					refuses.Store(true)
					h.relay.RestartServer("s")
					stream.nextOf(protocol.ResourcesChanged) // the last one of what it is told
					if client == "legacy" {
						eventually(t, "another listen is refused", func() bool { return len(s.got("subscriptions/listen")) > 3 })
						toldNothing(t, h.sessionOf(nil).Notify, stream)
					}
				})
			}
		}
	}
}

// The same holds when the first process that replaces the server ends before it answers a listen,
// and when the server ends its listen, and then refuses the next.
func TestARefusalAfterALostListenIsAnnounced(t *testing.T) {
	t.Parallel()
	for _, client := range eachEra {
		t.Run("lost "+client, func(t *testing.T) {
			t.Parallel()
			s := stdio(t, "s", "modern")
			refuses, lost := stubborn(s), new(atomic.Bool)
			granted := s.onListen
			s.onListen = func(q *query) string {
				if refuses.Load() && lost.CompareAndSwap(false, true) {
					q.close()
					<-q.ctx.Done()
				}
				return granted(q)
			}
			h := build(t, []Server{s.server()})
			stream := h.heard(client, "/mcp/s")
			eventually(t, "the server listens", func() bool { return s.listening() == 1 })
			refuses.Store(true)
			h.relay.RestartServer("s")
			stream.nextOf(protocol.ToolsChanged)
			if len(s.got("subscriptions/listen")) < 3 {
				t.Error("the client was told before a server refused a listen")
			}
		})
		t.Run("ended "+client, func(t *testing.T) {
			t.Parallel()
			s := web(t, "s", "modern")
			refuses := stubborn(s)
			h := build(t, []Server{s.server()})
			stream := h.heard(client, "/mcp/s")
			eventually(t, "the server listens", func() bool { return s.listening() == 1 })
			refuses.Store(true)
			q := s.last("subscriptions/listen")
			q.result(`{"resultType":"complete"}`)
			q.cancel(string(q.ID))
			stream.nextOf(protocol.ToolsChanged)
		})
	}
}
