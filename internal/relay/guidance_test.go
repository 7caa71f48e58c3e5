package relay

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// usher is a guide for tests: it greets by name, refuses calls if it is told a
// reason, and blocks or cuts params that hold a word.
type usher struct {
	text, less, refuses string
	cut, block          string

	mu   sync.Mutex
	acts []gate.Act
}

func (u *usher) Greeting(_ context.Context, a gate.Act) (string, string) {
	if u.text == "" {
		return "", ""
	}
	return u.text + " " + a.Who.Name() + " at " + a.Server, u.less
}

func (u *usher) Refuses(gate.Act) string { return u.refuses }

func (u *usher) Outgoing(a gate.Act, params []byte) ([]byte, bool) {
	u.mu.Lock()
	u.acts = append(u.acts, a)
	u.mu.Unlock()
	switch {
	case u.block != "" && bytes.Contains(params, []byte(u.block)):
		return params, true
	case u.cut != "" && bytes.Contains(params, []byte(u.cut)):
		return bytes.ReplaceAll(params, []byte(u.cut), []byte("[cut]")), false
	}
	return params, false
}

func guided(u *usher) option { return func(_ *house, o *Options) { o.Guide = u } }

// withKeeper builds a house with the built-in server that gives the guidance,
// and another one.
func withKeeper(t *testing.T, u *usher) *house {
	t.Helper()
	c := &clerk{}
	h := build(t, []Server{{Name: "instructions", Kind: KindBuiltin, Builtin: c, Source: "instruct"}, {Name: "clerk", Kind: KindBuiltin, Builtin: c, Source: "agent_msg"}}, guided(u))
	c.gate = func() *gate.Gate { return h.gate }
	return h
}

// TestTheAggregateGreetsBothErasWithTheSameBytes: initialize and
// server/discover give the same instructions, also on the server that gives the
// guidance. No other server gets them.
func TestTheAggregateGreetsBothErasWithTheSameBytes(t *testing.T) {
	t.Parallel()
	h := withKeeper(t, &usher{text: "Welcome <here> & “now”"})
	for path, want := range map[string]string{"/mcp": "Welcome <here> & “now” uid:1000 at ", "/mcp/instructions": "Welcome <here> & “now” uid:1000 at instructions", "/mcp/clerk": ""} {
		legacy := h.send("POST", path, "uid:1000", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`).end()
		modern := h.modern(path, "uid:1000").call("server/discover", `{}`)
		raw := [2]string{field(legacy, "result", "instructions"), field(modern, "result", "instructions")}
		if raw[0] != raw[1] {
			t.Errorf("%s: initialize says %s, server/discover %s", path, raw[0], raw[1])
		}
		equal(t, path, text(legacy, "result", "instructions"), want)
		for _, m := range []string{legacy, modern} {
			if strings.Contains(m, "degraded") {
				t.Errorf("%s: nothing is missing: %s", path, m)
			}
		}
	}
}

// TestAnIncompleteGreetingIsMarked in the result's _meta, whose other members
// stay.
func TestAnIncompleteGreetingIsMarked(t *testing.T) {
	t.Parallel()
	h := withKeeper(t, &usher{text: "Hello", less: "no_token"})
	modern := h.modern("/mcp", "uid:1000").call("server/discover", `{}`)
	equal(t, "flag", field(modern, "result", "_meta", "doorward/degraded"), "true")
	if field(modern, "result", "_meta", wire.MetaServerInfo) == "" {
		t.Error("the server's info is gone")
	}
}

func TestWithoutGuidanceTheAggregateHasNoInstructions(t *testing.T) {
	t.Parallel()
	h := withKeeper(t, &usher{})
	if m := h.modern("/mcp", "uid:1000").call("server/discover", `{}`); field(m, "result", "instructions") != "" {
		t.Error(m)
	}
}

// TestCallsWithoutGuidanceAreRefusedWithTheReason: calls of every server but
// the one that can tell the reason are refused and recorded, and do not reach
// the server. Lists are still answered.
func TestCallsWithoutGuidanceAreRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	h := withKeeper(t, &usher{refuses: "expired"})
	for _, answer := range []string{h.modern("/mcp/clerk", "uid:1000").tool("who", ""), h.modern("/mcp", "uid:1000").tool("clerk__who", ""),
		h.legacy("/mcp/clerk", "uid:1000", "{}").tool("who", "")} {
		equal(t, "code", code(answer), "1403")
		equal(t, "reason", text(answer, "error", "data", "reason"), "expired")
		if field(answer, "error", "data", "ref") == "0" || field(answer, "error", "data", "ref") == "" {
			t.Errorf("no record: %s", answer)
		}
	}
	equal(t, "rule", h.decided("tools/call", "clerk/who").Rule, ruleGuidance)
	if n := h.count("clerk.who", "desk"); n != 0 {
		t.Errorf("%d calls reached the server", n)
	}
	if answer := h.modern("/mcp/instructions", "uid:1000").tool("who", ""); code(answer) != "" {
		t.Errorf("the server that tells why: %s", answer)
	}
	if answer := h.modern("/mcp/clerk", "uid:1000").call("tools/list", `{}`); field(answer, "result", "tools") == "" {
		t.Errorf("the list: %s", answer)
	}
}

// TestABlockedCallReachesNoServer: a call whose params the guide blocks is
// refused and recorded, also one of a built-in server's tool.
func TestABlockedCallReachesNoServer(t *testing.T) {
	t.Parallel()
	u := &usher{block: "SECRETWORD"}
	h := withKeeper(t, u)
	for _, path := range []string{"/mcp/clerk", "/mcp"} {
		name := map[string]string{"/mcp": "clerk__who", "/mcp/clerk": "who"}[path]
		answer := h.modern(path, "uid:1000").tool(name, `"a":"SECRETWORD"`)
		equal(t, "code", code(answer), "1403")
		equal(t, "message", text(answer, "error", "message"), failure.Blocked)
	}
	if n := h.count("clerk.who", "desk"); n != 0 {
		t.Errorf("%d calls reached the server", n)
	}
	equal(t, "rule", h.decided("tools/call", "clerk/who").Rule, ruleLeak)
	if answer := h.modern("/mcp/clerk", "uid:1000").tool("who", `"a":"plain"`); code(answer) != "" {
		t.Errorf("what may leave: %s", answer)
	}
}

// mirror is a built-in server whose tool gives its arguments back.
type mirror struct{ clerk }

type mirrorDesk struct {
	upstream.Conn
	gate func() *gate.Gate
}

func (m *mirror) Open(who *principal.Principal, session string, modern bool, on func(upstream.Event)) (upstream.Conn, []byte) {
	c, hello := m.clerk.Open(who, session, modern, on)
	return mirrorDesk{c, m.gate}, hello
}

func (d mirrorDesk) Call(ctx context.Context, r *upstream.Request, on func(upstream.Event)) (upstream.Reply, error) {
	if r.Method != "tools/call" {
		return d.Conn.Call(ctx, r, on)
	}
	pass, _ := gate.PassOf(ctx)
	if _, err := pass.As("clerk.who", "mirror", "clerk.rule").Record(); err != nil {
		return upstream.Reply{}, err
	}
	return upstream.Reply{Result: rawjson.Set(nil, rawjson.Edit{Key: "said", Value: rawjson.Get(r.Params, "arguments")})}, nil
}

func TestCutArgumentsArriveCut(t *testing.T) {
	t.Parallel()
	m := &mirror{}
	h := build(t, []Server{{Name: "mirror", Kind: KindBuiltin, Builtin: m, Source: "agent_msg"}}, guided(&usher{cut: "SECRETWORD"}))
	m.gate = func() *gate.Gate { return h.gate }
	answer := h.modern("/mcp/mirror", "uid:1000").tool("back", `"a":"x SECRETWORD y"`)
	equal(t, "arrived", field(answer, "result", "said"), `{"a":"x [cut] y"}`)
	answer = h.modern("/mcp/mirror", "uid:1000").tool("back", `"a":"x SECRETWORD y"`, "Mcp-Param-A", "x SECRETWORD y")
	if code(answer) == "" {
		t.Errorf("a header still carries it: %s", answer)
	}
}
