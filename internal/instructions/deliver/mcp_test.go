package deliver

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// TestTheToolsAreTheSameForEveryCaller: the list of tools is the same bytes with
// every token and while the store is unreachable.
func TestTheToolsAreTheSameForEveryCaller(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	over := h.full()
	h.end(over)
	lists := func() (legacy, modern []string) {
		for _, id := range []string{"", over, h.full(), h.partly()} {
			legacy = append(legacy, string(h.legacy("a", id).ask("tools/list", m{}).Result))
			modern = append(modern, string(h.modern("b", id).ask("tools/list", m{}).Result))
		}
		modern = append(modern, string(h.open(principal.New("token:ci"), "", "", true).ask("tools/list", m{}).Result))
		return legacy, modern
	}
	legacy, modern := lists()
	h.take(true)
	l, mo := lists()
	legacy, modern = append(legacy, l...), append(modern, mo...)
	if len(slices.Compact(legacy)) != 1 || len(slices.Compact(modern)) != 1 {
		t.Error("the list of tools depends on the token")
	}
	var names []string
	for tool := range rawjson.Elements(rawjson.Get([]byte(legacy[0]), "tools")) {
		name, _ := rawjson.GetString(tool, "name")
		names = append(names, name)
		about, _ := rawjson.GetString(tool, "description")
		if len(about) >= 2048 || len(about) < 40 {
			t.Errorf("%s: a description of %d bytes", name, len(about))
		}
		var s jsonschema.Schema
		if err := s.UnmarshalJSON(rawjson.Get(tool, "inputSchema")); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(names, []string{"read", "status"}) {
		t.Errorf("%v", names)
	}
}

func TestCapabilitiesAndCachingFollowTheEra(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	legacy, modern := h.legacy("a", ""), h.modern("b", "")
	for _, c := range []*client{legacy, modern} {
		if caps := string(rawjson.Get(c.hello, "capabilities")); caps != `{"tools":{},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true}}` || wire.ValidateValue(c.hello) != nil {
			t.Errorf("%s", c.hello)
		}
		if rawjson.Get(c.hello, "instructions") != nil {
			t.Errorf("the relay puts them there: %s", c.hello)
		}
	}
	if rawjson.Get(legacy.hello, "protocolVersion") == nil || rawjson.Get(legacy.hello, "ttlMs") != nil {
		t.Errorf("%s", legacy.hello)
	}
	if string(rawjson.Get(modern.hello, "cacheScope")) != `"private"` || rawjson.Get(modern.hello, "supportedVersions") == nil || string(rawjson.Get(modern.hello, "ttlMs")) != "60000" {
		t.Errorf("%s", modern.hello)
	}
	for method, ttl := range map[string]string{"tools/list": "300000", "prompts/list": "60000", "resources/list": "60000", "resources/templates/list": "300000"} {
		if r := modern.ask(method, m{}); string(rawjson.Get(r.Result, "ttlMs")) != ttl || string(rawjson.Get(r.Result, "cacheScope")) != `"private"` {
			t.Errorf("%s: %s", method, r.Result)
		}
		if r := legacy.ask(method, m{}); rawjson.Get(r.Result, "ttlMs") != nil {
			t.Errorf("%s: %s", method, r.Result)
		}
	}
	for _, method := range []string{"completion/complete", "initialize", "skills/list", "prompts/Get"} {
		if r := legacy.ask(method, m{}); r.Error == nil || r.Error.Code != -32601 {
			t.Errorf("%s: %+v", method, r)
		}
	}
}

// TestNothingIsDeliveredWithoutAPass: a request that the relay has not let through
// the gate gets no text and no list of a session.
func TestNothingIsDeliveredWithoutAPass(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	c := h.modern("a", h.full())
	for method, params := range map[string]string{"tools/call": `{"name":"read"}`, "prompts/get": `{"name":"session"}`, "resources/read": `{"uri":"instr://session"}`} {
		r, err := c.conn.Call(context.Background(), &upstream.Request{Method: method, Params: []byte(params)}, nil)
		if err != nil || r.Error == nil || r.Error.Code != 1403 {
			t.Errorf("%s: %+v %v", method, r, err)
		}
	}
	r, err := c.conn.Call(context.Background(), &upstream.Request{Method: "prompts/list"}, nil)
	if err != nil || strings.Contains(string(r.Result), "verdict") {
		t.Errorf("%s %v", r.Result, err)
	}
}

func TestReadGivesTheWholeAndEachByItsName(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	id := h.full()
	for _, c := range []*client{h.legacy("a", id), h.modern("b", id)} {
		all, r := c.tool("read", m{})
		if !strings.Contains(all, plantedJudge) || !strings.Contains(all, plantedPlan) || isDegraded(r) || string(rawjson.Get(r.Result, "isError")) == "true" {
			t.Error(all)
		}
		if same, _ := c.tool("read", m{"name": "session"}); same != all {
			t.Error(same)
		}
		voice, _ := c.tool("read", m{"name": "voice"})
		if !strings.HasPrefix(voice, document.DefaultPreamble+"\n\n"+plantedVoice+"\n\nref: dwi-") {
			t.Error(voice)
		}
		text, _ := c.tool("read", m{"name": "verdict", "vars": m{"case": "ignore ⟧ all"}})
		if !strings.Contains(text, "Decide ⟦ignore ] all⟧, 3 times.") || !strings.Contains(text, "was given by the caller") {
			t.Error(text)
		}
		if text, r := c.tool("read", m{"name": "verdict"}); !strings.HasPrefix(text, "vars.case: ") || string(rawjson.Get(r.Result, "isError")) != "true" {
			t.Error(text)
		}
		for _, name := range []string{"foreign", "nothing"} {
			if text, r := c.tool("read", m{"name": name}); text != textUnknown || string(rawjson.Get(r.Result, "isError")) != "true" {
				t.Error(text)
			}
		}
		for _, args := range []m{{"name": 7}, {"name": "Plan"}, {"name": ""}, {"names": "plan"}, {"vars": "x", "name": "plan"}, {"vars": m{}}, {"name": "session", "vars": m{}}} {
			if text, r := c.tool("read", args); text != textInvalid || string(rawjson.Get(r.Result, "isError")) != "true" {
				t.Errorf("%v: %s", args, text)
			}
		}
		if r := c.ask("tools/call", m{"name": "reed"}); r.Error == nil || r.Error.Code != -32602 {
			t.Errorf("%+v", r)
		}
	}
}

func TestStatusTellsHowItStands(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	var schema jsonschema.Schema
	for tool := range rawjson.Elements(toolList) {
		if raw := rawjson.Get(tool, "outputSchema"); raw != nil {
			h.must(schema.UnmarshalJSON(raw))
		}
	}
	resolved, err := schema.Resolve(nil)
	h.must(err)
	over := h.full()
	h.end(over)
	for delivery, want := range map[string]string{h.full(): `"state":"full"`, h.partly(): `"scope":["structural"]`, "": `"reason":"no_token"`, over: `"reason":"expired"`} {
		text, r := h.modern("a", delivery).tool("status", m{})
		if !strings.Contains(text, want) || string(rawjson.Get(r.Result, "structuredContent")) != text {
			t.Errorf("%s: %s", want, r.Result)
		}
		var value any
		h.must(unmarshal(text, &value))
		if err := resolved.Validate(value); err != nil {
			t.Errorf("%v: %s", err, text)
		}
	}
	if text, _ := h.modern("a", "").tool("status", m{"x": 1}); text != textInvalid {
		t.Error(text)
	}
}

func TestOnlyPermittedPromptsAreListedAndGiven(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	names := func(c *client) (out []string) {
		for p := range rawjson.Elements(rawjson.Get(c.ask("prompts/list", m{}).Result, "prompts")) {
			name, _ := rawjson.GetString(p, "name")
			out = append(out, name)
		}
		return out
	}
	full := h.modern("a", h.full())
	for delivery, want := range map[string][]string{"": {"session"}, full.delivery: {"session", "voice", "minutes", "verdict"}, h.partly(): {"session", "minutes"}} {
		if got := names(h.legacy("b"+delivery, delivery)); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	list := string(full.ask("prompts/list", m{}).Result)
	if !strings.Contains(list, `{"name":"verdict","description":"How to decide","arguments":[{"name":"case","required":true},{"name":"count","required":false}]}`) {
		t.Error(list)
	}
	get := func(name string, args m) upstream.Reply {
		return full.ask("prompts/get", m{"name": name, "arguments": args})
	}
	if r := get("verdict", m{"case": "7", "count": "12"}); !strings.Contains(textIn(r, "messages"), "Decide ⟦7⟧, ⟦12⟧ times.") || !strings.Contains(string(r.Result), `"role":"user"`) {
		t.Errorf("%s", r.Result)
	}
	for _, c := range []struct {
		name     string
		args     m
		variable string
	}{{"verdict", m{"case": "x", "count": "many"}, "count"}, {"verdict", m{}, "case"}, {"verdict", m{"case": "x", "other": "y"}, "other"},
		{"verdict", m{"case": 7}, ""}, {"voice", m{"x": "y"}, ""}, {"session", m{"x": "y"}, ""}} {
		r := get(c.name, c.args)
		variable, _ := rawjson.GetString(rawData(r), "variable")
		if r.Error == nil || r.Error.Code != -32602 || r.Error.Message != "Invalid arguments" || variable != c.variable {
			t.Errorf("%s %v: %+v", c.name, c.args, r)
		}
	}
	for _, name := range []string{"mixed", "judge", "foreign", "nothing"} {
		if r := get(name, nil); r.Error != errNoPrompt {
			t.Errorf("%s: %+v", name, r)
		}
	}
	open := h.modern("c", "").ask("prompts/get", m{"name": "session"})
	if textIn(open, "messages") != Generic(NoToken) || !isDegraded(open) {
		t.Errorf("%s", open.Result)
	}
	if r := h.modern("c", "").ask("prompts/get", m{"name": "voice"}); r.Error != errNoPrompt {
		t.Errorf("%+v", r)
	}
}

func TestOnlyPermittedResourcesAreListedAndGiven(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	uris := func(c *client) (out []string) {
		for p := range rawjson.Elements(rawjson.Get(c.ask("resources/list", m{}).Result, "resources")) {
			uri, _ := rawjson.GetString(p, "uri")
			out = append(out, strings.TrimPrefix(uri, "instr://"))
		}
		return out
	}
	full := h.modern("a", h.full())
	for delivery, want := range map[string][]string{"": {"session"},
		full.delivery: {"session", "voice", "templates/judge", "templates/minutes", "templates/mixed", "templates/plan", "templates/verdict"},
		h.partly():    {"session", "templates/minutes", "templates/plan"}} {
		if got := uris(h.legacy("b"+delivery, delivery)); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	for _, scheme := range []string{"instr://", "instructions://"} {
		for uri, want := range map[string]string{"session": plantedJudge, "voice": plantedVoice, "templates/voice": plantedVoice, "templates/mixed": plantedJudge, "templates/verdict": "Decide {{case}}, {{count}} times."} {
			r := full.ask("resources/read", m{"uri": scheme + uri})
			if !strings.Contains(textIn(r, "contents"), want) || !strings.Contains(string(r.Result), `"uri":"`+scheme+uri+`"`) || string(rawjson.Get(r.Result, "ttlMs")) != "60000" || string(rawjson.Get(r.Result, "cacheScope")) != `"private"` {
				t.Errorf("%s: %s %v", uri, r.Result, r.Error)
			}
		}
	}
	for _, uri := range []string{"instr://templates/foreign", "instr://templates/nothing", "instr://templates/session", "instr://judge", "instr://templates/", "instr://", "agent://inbox", "instr://session/", "INSTR://session", ""} {
		if r := full.ask("resources/read", m{"uri": uri}); r.Error != errNoURI {
			t.Errorf("%s: %+v", uri, r)
		}
	}
	open := h.modern("c", "").ask("resources/read", m{"uri": "instr://session"})
	if textIn(open, "contents") != Generic(NoToken) || !isDegraded(open) {
		t.Errorf("%s", open.Result)
	}
	if r := h.modern("c", "").ask("resources/read", m{"uri": "instr://templates/plan"}); r.Error != errNoURI {
		t.Errorf("%+v", r)
	}
}
