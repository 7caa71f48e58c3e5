package relay

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream"
)

// keeper is a built-in server that holds every act for the operator, as the mailboxes hold a message.
type keeper struct {
	clerk
	calls, done atomic.Int32
	run         atomic.Value // string: the arguments of the last call that was let through
}

// keeperDesk is one connection of a keeper.
type keeperDesk struct {
	*desk
	k *keeper
}

func (k *keeper) Open(who *principal.Principal, session string, modern bool, on func(upstream.Event)) (upstream.Conn, []byte) {
	c, hello := k.clerk.Open(who, session, modern, on)
	return keeperDesk{c.(*desk), k}, hello
}

func (d keeperDesk) Call(ctx context.Context, r *upstream.Request, on func(upstream.Event)) (upstream.Reply, error) {
	if r.Method != "tools/call" && r.Method != "prompts/get" {
		return d.desk.Call(ctx, r, on)
	}
	d.k.calls.Add(1)
	pass, _ := gate.PassOf(ctx)
	pass, err := pass.Hold(policy.Ask{Rule: "held"}, "letter", []byte(`{}`))
	if err != nil {
		return upstream.Reply{}, err
	}
	if r.Method == "tools/call" {
		if _, err := d.k.gate().Record(pass.As("clerk.who", "letter", "rule").Line()); err != nil {
			return upstream.Reply{}, err
		}
	}
	d.k.done.Add(1)
	d.k.run.Store(string(rawjson.Get(r.Params, "arguments")))
	return upstream.Reply{Result: []byte(`{"done":true}`)}, nil
}

// TestACallOfABuiltInServerIsDecidedAgain: when what a call of a built-in server was held under has
// changed, the whole call is decided again: it is asked about once more, or denied.
func TestACallOfABuiltInServerIsDecidedAgain(t *testing.T) {
	t.Parallel()
	for method, params := range map[string]string{"tools/call": `{"name":"t","arguments":{}}`, "prompts/get": `{"name":"t"}`} {
		for _, change := range []string{"policy", "connection", "denied"} {
			t.Run(method+" "+change, func(t *testing.T) {
				t.Parallel()
				k, d := &keeper{}, &counter{t: t}
				h := build(t, []Server{{Name: "clerk", Kind: KindBuiltin, Builtin: k, Source: "agent_msg"}}, withCounter(d, "other", "", time.Hour))
				k.gate = func() *gate.Gate { return h.gate }
				c, answer := h.legacy("/mcp/clerk", "uid:1000", `{}`), make(chan string, 1)
				go func() { answer <- c.call(method, params) }()
				eventually(t, "it waits", func() bool { return len(d.queue.Pending()) == 1 })
				switch change {
				case "policy":
					h.obey("")
				case "denied":
					h.obey(`forbid (principal, action == Action::"` + method + `", resource in Server::"clerk");`)
				default:
					b := h.relay.table.Load().byName["clerk"]
					b.fallen.Add(1)
				}
				if d.queue.Review(); change == "denied" {
					contains(t, "the call", within(t, "the denial", func() string { return <-answer }), `"error"`)
					equal(t, "calls, done", fmt.Sprint(k.calls.Load(), k.done.Load(), len(d.queue.Pending())), "1 0 0")
					return
				}
				eventually(t, "it is asked about again", func() bool { q := d.queue.Pending(); return len(q) == 1 && q[0].N == 2 })
				d.settle(approval.Verdict{Approve: true})
				contains(t, "the call", <-answer, `"done":true`)
				equal(t, "calls, done", fmt.Sprint(k.calls.Load(), k.done.Load()), "3 1")
			})
		}
	}
}

// TestABuiltInServerGetsTheArgumentsAsShown: a call that the operator lets through runs with the
// arguments in the form in which they are kept for the operator.
func TestABuiltInServerGetsTheArgumentsAsShown(t *testing.T) {
	t.Parallel()
	for sent, want := range map[string]string{
		`{ "b": 1, "a": [ 2 ] }`:      `{"a":[2],"b":1}`,
		`{"text":"\u0041\u002f"}`:     `{"text":"A/"}`,
		`{"n":{"\u006b":1e2, "a":1}}`: `{"n":{"a":1,"k":1e2}}`,
	} {
		k, d := &keeper{}, &counter{t: t}
		h := build(t, []Server{{Name: "clerk", Kind: KindBuiltin, Builtin: k, Source: "agent_msg"}}, withCounter(d, "other", "", time.Hour))
		k.gate = func() *gate.Gate { return h.gate }
		c, answer := h.legacy("/mcp/clerk", "uid:1000", `{}`), make(chan string, 1)
		go func() { answer <- c.call("tools/call", `{"name":"t","arguments":`+sent+`}`) }()
		eventually(t, "it waits", func() bool { return len(d.queue.Pending()) == 1 })
		d.settle(approval.Verdict{Approve: true})
		contains(t, "the call", within(t, "its answer", func() string { return <-answer }), `"done":true`)
		run, _ := k.run.Load().(string)
		equal(t, "arguments", run, want)
	}
}

// TestALinkThatEndsWhileItOpensEndsNoQuestion: a session that ends while its connection is being set
// up, as often as its client likes, does not end the questions about the calls of others.
func TestALinkThatEndsWhileItOpensEndsNoQuestion(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := start(t, "s", "legacy")
			s.caps = `{"logging":{},"tools":{}}`
			s.serve = func(q *query) { <-q.ctx.Done() } // to set the level takes long
			d := &counter{t: t}
			h := build(t, []Server{s.server(instances("session"))}, withCounter(d, "s", "", time.Hour))
			b := h.relay.table.Load().byName["s"]
			c, answer := h.legacy("/mcp/s", "uid:1000", `{}`), make(chan string, 1)
			go func() { answer <- c.tool("t", "") }()
			eventually(t, "a call waits", func() bool { return len(d.queue.Pending()) == 1 })
			open := b.instances()
			for i := range 3 {
				l := h.relay.links.new(b, owner{who: principal.New("token:other"), init: []byte(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`)})
				setting := make(chan struct{})
				l.opened = func(ctx context.Context, _ *liveConn) { close(setting); <-ctx.Done() }
				opened := make(chan error, 1)
				go func() { _, err := l.get(t.Context()); opened <- err }()
				<-setting
				l.close()
				<-opened
				eventually(t, "the connection is closed", func() bool { return b.instances() == open })
				if q := d.queue.Pending(); len(q) != 1 || q[0].N != 1 {
					t.Fatalf("after %d links that ended: %+v", i+1, q)
				}
			}
			d.settle(approval.Verdict{})
			<-answer
		})
	}
}

// TestAnOpenQuestionKeepsNoMessage: what a held call has in _meta is not kept for as long as its
// question is open. It counts for no limit of the queue.
func TestAnOpenQuestionKeepsNoMessage(t *testing.T) {
	const calls, size = 60, 1 << 19
	s := stdio(t, "s", "legacy")
	d := &counter{t: t}
	h := build(t, []Server{s.server()}, withCounter(d, "s", "", 0))
	m := h.modern("/mcp/s", "uid:1000")
	long := bytes.Repeat([]byte("x"), size)
	inUse := func() uint64 {
		runtime.GC()
		runtime.GC()
		var is runtime.MemStats
		runtime.ReadMemStats(&is)
		return is.HeapAlloc
	}
	before := inUse()
	for i := range calls {
		contains(t, "a call", m.call("tools/call", fmt.Sprintf(`{"name":"t","arguments":{"i":%d},"_meta":{"long":"%s"}}`, i, long)), `"pending"`)
	}
	if n := len(d.queue.Pending()); n != calls {
		t.Fatalf("%d wait", n)
	}
	eventually(t, "what is kept is small", func() bool { return inUse() < before+calls*size/4 })
}
