package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// pose puts a question to the client and does not wait for its answer.
func (q *query) pose() (id string, answer chan string) {
	id, answer = q.question()
	q.emit(rawjson.AppendRequest(nil, wire.ID(id), policy.AskElicitation, []byte(`{"message":"?"}`)))
	return id, answer
}

// clean waits until no call and no question is left on the pooled connections of a server.
func (h *house) clean(server string) {
	h.t.Helper()
	eventually(h.t, "no call and no question is left", func() bool {
		b := h.relay.table.Load().byName[server]
		b.mu.Lock()
		defer b.mu.Unlock()
		left := int(b.traffic.active.Load())
		for _, l := range b.pool {
			if c := l.live.Load(); c != nil {
				c.mu.Lock()
				left += len(c.asks) + len(c.running)
				c.mu.Unlock()
			}
		}
		return left == 0
	})
}

// A question that ends with its call is answered and forgotten, so the time limit holds for
// the calls after it. The server here waits for no answer: it ends its calls at once, or
// after the client was asked; or the client leaves before it was asked.
func TestAQuestionEndsWithItsCall(t *testing.T) {
	t.Parallel()
	const calls = 5
	for kind, start := range transports {
		for _, way := range []string{"at once", "asked", "left"} {
			t.Run(kind+" "+way, func(t *testing.T) {
				t.Parallel()
				s := start(t, "quiz", "legacy")
				answers := make(chan chan string, calls)
				answered := func() string {
					select {
					case a := <-<-answers:
						return field(a, "result", "action")
					case <-time.After(30 * time.Second):
						return "nothing"
					}
				}
				s.serve = func(q *query) {
					if q.name() == "hang" {
						<-q.ctx.Done()
						return
					}
					_, answer := q.pose()
					answers <- answer
					q.notify("notifications/progress", `{"progressToken":`+string(rawjson.GetPath(q.Params, "_meta", "progressToken"))+`,"progress":1}`)
					switch way {
					case "asked":
						q.arrive()
					case "left":
						<-q.ctx.Done()
					}
					q.result(`{"said":"enough"}`)
				}
				h := build(t, []Server{s.server(func(_ *Server, d *upstream.Definition) { d.Timeout = 5 * time.Second })})
				h.relay.calls.parkFor = time.Minute
				if way == "left" {
					h.relay.calls.parkFor = 100 * time.Millisecond // a client that was too slow to leave is asked
				}
				m := h.modern("/mcp/quiz", "uid:1000")
				m.caps = elicits
				for i := range calls {
					params := fmt.Sprintf(`"name":"hasty","arguments":{"i":%d}`, i)
					r := m.begin("tools/call", `{`+params+`,"_meta":{"progressToken":1}}`)
					if way == "left" {
						r.next()
						r.stop()
					} else {
						end := r.end()
						if way == "asked" {
							s.proceed <- struct{}{}
						}
						for strings.Contains(end, `"inputRequests"`) { // the question came before the result
							end = m.call("tools/call", back(params, end, `{}`))
						}
						contains(t, "result", end, `"said":"enough"`)
					}
					if a := answered(); a != `"cancel"` && a != `"decline"` {
						t.Fatalf("the server was answered %s", a)
					}
				}
				h.clean("quiz")
				equal(t, "a call that hangs", code(m.tool("hang", "")), "1504")
			})
		}
	}
}

// A question that its server withdraws at once ends before its call does, however late it is
// decided.
func TestAWithdrawnQuestionEnds(t *testing.T) {
	t.Parallel()
	const calls = 10
	for kind, start := range transports {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := start(t, "quiz", "legacy")
			s.serve = func(q *query) {
				id, _ := q.pose()
				q.notify("notifications/cancelled", `{"requestId":`+id+`}`)
				q.arrive()
				q.result(`{"said":"nothing"}`)
			}
			h := build(t, []Server{s.server()})
			m := h.modern("/mcp/quiz", "uid:1000")
			m.caps = elicits
			for i := range calls {
				params := fmt.Sprintf(`"name":"t","arguments":{"i":%d}`, i)
				done := make(chan string, 1)
				go func() { done <- m.call("tools/call", `{`+params+`}`) }()
				eventually(t, "the question is cancelled before its call ends", func() bool { return h.cancelled() == i+1 })
				s.proceed <- struct{}{}
				end := <-done
				if text(end, "result", "resultType") == "input_required" { // the withdrawal came late
					end = m.call("tools/call", back(params, end, `{}`))
				}
				contains(t, "result", end, `"said":"nothing"`)
			}
			h.clean("quiz")
		})
	}
}

// cancelled counts the questions on record as cancelled.
func (h *house) cancelled() (n int) {
	for _, r := range h.records() {
		if r.Kind == audit.Outcome && r.Action == policy.AskElicitation && r.Result == "cancelled" {
			n++
		}
	}
	return n
}
