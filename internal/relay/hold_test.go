package relay

import (
	"fmt"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
)

// counter is the queue of held calls, where a test decides in the operator's place.
type counter struct {
	t     *testing.T
	queue *approval.Queue
}

// withCounter holds every call of a server's tools. page is the console's address.
func withCounter(d *counter, server, page string, wait time.Duration) option {
	return func(h *house, o *Options) {
		h.rules[server] = policy.ServerRules{Tools: everyTool, Ask: elicitation, Held: []string{"*"}}
		d.queue = approval.New(approval.Options{Expire: time.Hour, Record: func(r *audit.Record) (uint64, error) { return h.log.Append(r) },
			Save: func([]approval.Grant) error { return nil }}, nil)
		o.Hold = &Hold{Queue: d.queue, Wait: func(string) time.Duration { return wait }, Page: func() string { return page }}
	}
}

// settle decides the one call that waits.
func (d *counter) settle(v approval.Verdict) {
	d.t.Helper()
	eventually(d.t, "one call waits", func() bool { return len(d.queue.Pending()) == 1 })
	if err := d.queue.Settle(principal.New("uid:1000"), d.queue.Pending()[0].N, "", v); err != nil {
		d.t.Fatal(err)
	}
}

// A held call sends a modern client that can be sent to a URL to the page where the operator
// decides. When the client comes back, its call runs once if it was approved, and waits on if
// not.
func TestAHeldCallLeadsToThePage(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		for _, path := range []string{"/mcp/quiz", "/mcp"} {
			for _, era := range []string{"legacy", "modern"} {
				t.Run(fmt.Sprint(kind, " ", path, " ", era), func(t *testing.T) {
					t.Parallel()
					s := start(t, "quiz", era)
					s.serve = func(q *query) { q.result(`{"content":[],"params":%s}`, q.Params) }
					d := &counter{t: t}
					h := build(t, []Server{s.server()}, withCounter(d, "quiz", "http://localhost:1/ui/decisions", 20*time.Millisecond))
					m := h.modern(path, "uid:1000")
					m.caps = byURL
					params := object("tools/call", path, "a")
					first := m.call("tools/call", `{`+params+`}`)
					equal(t, "question", field(first, "result", wire.InputRequests), `{"doorward-approval":{"method":"elicitation/create","params":{"mode":"url",`+
						`"url":"http://localhost:1/ui/decisions","message":"Doorward holds this call for the approval of a person, as number 1.","elicitationId":"approval-1"}}}`)
					accepted := `{"doorward-approval":{"action":"accept"}}`
					waits := m.call("tools/call", back(params, first, accepted))
					equal(t, "not approved yet", field(waits, "result", "structuredContent", "pending"), "1")
					equal(t, "of another caller, which is held separately", field(h.modern(path, "token:bob").call("tools/call", back(params, first, accepted)), "result", "structuredContent", "pending"), "2")
					if err := d.queue.Settle(principal.New("uid:1000"), 1, "", approval.Verdict{Approve: true}); err != nil {
						t.Fatal(err)
					}
					done := m.call("tools/call", back(params, first, accepted))
					equal(t, "without the state", field(done, "result", "params", "requestState")+field(done, "result", "params", "inputResponses"), "")
					equal(t, "runs", fmt.Sprint(len(s.got("tools/call"))), "1")
					again := m.call("tools/call", back(params, first, accepted))
					if field(again, "result", "structuredContent", "pending") == "" || len(s.got("tools/call")) != 1 {
						t.Errorf("the state ran it again: %s", again)
					}
				})
			}
		}
	}
}

// A server's own state reaches it with the answers, whatever it is, also where acts can be held.
func TestAServersStateIsNotTakenForDoorwards(t *testing.T) {
	t.Parallel()
	for _, state := range []string{`"approval"`, `"replay"`, `"page"`, `""`, `"dw1.x"`} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			s := web(t, "quiz", "modern")
			s.serve = func(q *query) {
				if own := rawjson.Get(q.Params, "requestState"); own != nil {
					q.result(`{"resultType":"complete","content":[],"state":%s,"answers":%s}`, own, orNull(rawjson.Get(q.Params, "inputResponses")))
					return
				}
				q.result(`{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"?"}}},"requestState":%s}`, state)
			}
			h := build(t, []Server{s.server()}, withCounter(&counter{t: t}, "quiz", "http://localhost:1/ui/decisions", time.Millisecond), withRules("quiz", everyTool, elicitation))
			m := h.modern("/mcp/quiz", "uid:1000")
			m.caps = everyQuestion
			const answers = `{"k":{"action":"accept","content":{"n":1}}}`
			end := m.call("tools/call", back(`"name":"a"`, m.call("tools/call", `{"name":"a"}`), answers))
			equal(t, "state", field(end, "result", "state"), state)
			equal(t, "answers", field(end, "result", "answers"), answers)
		})
	}
}

// Every way of asking for a held tool waits, and the server sees nothing of what was not
// approved.
func TestNothingHeldReachesAServer(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := start(t, "s", "both")
			d := &counter{t: t}
			h := build(t, []Server{s.server()}, withCounter(d, "s", "", time.Millisecond))
			for _, path := range []string{"/mcp/s", "/mcp"} {
				name := "t"
				if path == "/mcp" {
					name = "s__t"
				}
				for era, c := range clients(h, path, "uid:1000") {
					for _, args := range []string{`{"name":%q}`, `{"name":%q,"arguments":{"a":1}}`, `{"arguments":{"a":[1,{"b":null}]},"name":%q}`,
						`{"name":%q,"task":{"ttl":1}}`, `{"name":%q,"requestState":"x","inputResponses":{}}`} {
						out := c("tools/call", fmt.Sprintf(args, name))
						if field(out, "result", "structuredContent", "pending") == "" {
							t.Errorf("%s %s %s: %s", path, era, args, out)
						}
					}
				}
			}
			if got := s.got("tools/call"); len(got) != 0 {
				t.Errorf("the server saw %v", got)
			}
			for _, r := range h.records() {
				if r.Action == "tools/call" && r.Decision == audit.Allow {
					t.Errorf("recorded as allowed: %+v", r)
				}
			}
		})
	}
}

// The question, the grant, the decision and the outcome of a held call are separate records.
// Each but the question and a decision to deny refers to the one before.
func TestTheRecordOfAnApproval(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	d := &counter{t: t}
	h := build(t, []Server{s.server()}, withCounter(d, "s", "", time.Hour))
	c := h.legacy("/mcp/s", "uid:1000", `{}`)
	done := make(chan string, 1)
	go func() { done <- c.call("tools/call", `{"name":"t"}`) }()
	d.settle(approval.Verdict{Approve: true})
	<-done
	go func() { done <- c.call("tools/call", `{"name":"u"}`) }()
	d.settle(approval.Verdict{Why: "no"})
	equal(t, "denied", text(<-done, "error", "message"), "Not approved by the operator: no")
	var chain []string
	refs := map[uint64]string{}
	for _, r := range h.records() {
		if r.Source == "approval" || r.Action == "tools/call" {
			word := r.Action + " " + r.Kind + " " + r.Decision + r.Result
			chain = append(chain, word+" <- "+refs[r.Ref])
			refs[r.Seq] = word
		}
	}
	equal(t, "records", fmt.Sprintf("%q", chain), fmt.Sprintf("%q", []string{
		"approval.asked event  <- ",
		"approval.granted event  <- approval.asked event ",
		"tools/call decision allow <- approval.granted event ",
		"tools/call outcome ok <- tools/call decision allow",
		"approval.asked event  <- ",
		"approval.denied event  <- approval.asked event ",
		"tools/call decision deny <- ",
	}))
}

// Arguments with equal numbers are the same held call, however the numbers are written. The call
// runs with the very bytes that the operator was shown.
func TestTheNumbersOfAHeldCall(t *testing.T) {
	t.Parallel()
	for shown, equals := range map[string][]string{
		`{"n":1}`:                   {`{"n":1.0}`, `{"n":1e0}`, `{ "n" : 10E-1 }`},
		`{"a":[0.5,{"b":"1"}]}`:     {`{"a":[5e-1,{"b":"1"}]}`, `{"a":[0.50,{"b":"\u0031"}]}`},
		`{"n":9007199254740993.0}`:  {`{"n":9007199254740993}`},
		`{"n":1e400,"s":"1.0 1e5"}`: {`{"s":"1.0 1e5","n":10e399}`},
	} {
		t.Run(shown, func(t *testing.T) {
			t.Parallel()
			s := stdio(t, "s", "legacy")
			d := &counter{t: t}
			h := build(t, []Server{s.server()}, withCounter(d, "s", "", time.Millisecond))
			c := h.legacy("/mcp/s", "uid:1000", `{}`)
			call := func(args string) string { return c.call("tools/call", `{"name":"t","arguments":`+args+`}`) }
			equal(t, "asked", field(call(shown), "result", "structuredContent", "pending"), "1")
			for i, other := range equals {
				n := fmt.Sprint(2*i + 1)
				equal(t, other, field(call(other), "result", "structuredContent", "pending"), n)
				q := d.queue.Pending()[0]
				d.settle(approval.Verdict{Approve: true})
				equal(t, "runs", field(call(other), "result", "structuredContent", "pending"), "")
				got := s.got("tools/call")
				equal(t, "how many ran", fmt.Sprint(len(got)), fmt.Sprint(i+1))
				equal(t, "what ran", string(rawjson.Get(got[i].Params, "arguments")), q.Args)
				equal(t, "asked again", field(call(shown), "result", "structuredContent", "pending"), fmt.Sprint(2*i+2))
				d.settle(approval.Verdict{})
				call(shown)
				equal(t, "asked once more", field(call(shown), "result", "structuredContent", "pending"), fmt.Sprint(2*i+3))
			}
		})
	}
}

// A number of another value is another call.
func TestAnotherNumberIsAnotherCall(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	d := &counter{t: t}
	h := build(t, []Server{s.server()}, withCounter(d, "s", "", time.Millisecond))
	c := h.legacy("/mcp/s", "uid:1000", `{}`)
	for i, n := range []string{`1`, `-1`, `"1"`, `1.0000000000000001`, `9007199254740992`, `9007199254740993`, `1e400`, `1e401`, `0.1`, `0.1000000000000000055`, `true`, `null`} {
		equal(t, n, field(c.call("tools/call", `{"name":"t","arguments":{"n":`+n+`}}`), "result", "structuredContent", "pending"), fmt.Sprint(i+1))
	}
}
