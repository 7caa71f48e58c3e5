package relay

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
)

// A first listen that did not reach its server is made again, and the client hears the server
// from then on. Only where the whole listen is for that server, the client gets the error.
func TestAListenThatDidNotReachItsServerIsMadeAgain(t *testing.T) {
	t.Parallel()
	for _, status := range []int{429, 500, 502, 503} {
		for who, listen := range map[string]func(*house) *reply{
			"modern": func(h *house) *reply {
				h.modern("/mcp", "uid:1000").tool("s__echo", "") // the link is open
				r, _ := h.modern("/mcp", "uid:1000").subscribe(`{"toolsListChanged":true,"resourceSubscriptions":["doorward://s/file:///a"]}`)
				return r
			},
			"legacy": func(h *house) *reply {
				c := h.legacy("/mcp", "uid:1000", `{}`)
				c.tool("s__echo", "")
				return c.listen()
			},
		} {
			t.Run(fmt.Sprint(who, status), func(t *testing.T) {
				t.Parallel()
				s := web(t, "s", "modern")
				var first atomic.Pointer[query]
				s.status = func(q *query) int {
					if q.Method == "subscriptions/listen" && (first.CompareAndSwap(nil, q) || first.Load() == q) {
						return status
					}
					return 0
				}
				r := listen(build(t, []Server{s.server()}))
				eventually(t, "the server is listened to", func() bool { return s.listening() == 1 })
				r.nextOf(protocol.ToolsChanged) // what may have been missed
				s.change(protocol.PromptsChanged, `{}`)
				s.change(protocol.ToolsChanged, `{}`)
				r.nextOf(protocol.ToolsChanged)
			})
		}
	}
	t.Run("the route of one server", func(t *testing.T) {
		t.Parallel()
		s := web(t, "s", "modern")
		var failing atomic.Bool
		failing.Store(true)
		s.status = func(q *query) int {
			if q.Method == "subscriptions/listen" && failing.Load() {
				return 503
			}
			return 0
		}
		m := build(t, []Server{s.server()}).modern("/mcp/s", "uid:1000")
		r := m.begin("subscriptions/listen", `{"notifications":`+everyList+`}`)
		equal(t, "the failure", fmt.Sprint(r.status, code(r.end())), "5021502")
		failing.Store(false)
		_, ack := m.subscribe(everyList)
		equal(t, "the next one", field(ack, "params", "notifications"), everyList)
	})
}

// A listen that a wider one replaces before the server has acknowledged it is part of that.
func TestAListenThatIsReplacedBeforeItsAcknowledgement(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := start(t, "s", "modern")
			var first atomic.Bool
			s.onListen = func(q *query) string {
				if !first.Swap(true) {
					<-q.ctx.Done()
				}
				return field(q.raw, "params", "notifications")
			}
			h := build(t, []Server{s.server()})
			acks := make(chan string, 2)
			for i, filter := range []string{`{"toolsListChanged":true}`, `{"toolsListChanged":true,"resourceSubscriptions":["file:///a"]}`} {
				go func() {
					r := h.modern("/mcp/s", "uid:1000").begin("subscriptions/listen", `{"notifications":`+filter+`}`)
					acks <- field(r.next(), "params", "notifications")
				}()
				eventually(t, "a listen at the server", func() bool { return len(s.got("subscriptions/listen")) == i+1 })
			}
			one, two := <-acks, <-acks
			if len(one) > len(two) {
				one, two = two, one
			}
			equal(t, "one", one, `{"toolsListChanged":true}`)
			equal(t, "two", two, `{"toolsListChanged":true,"resourceSubscriptions":["file:///a"]}`)
		})
	}
}
