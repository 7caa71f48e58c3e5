package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/upstream"
)

// tokens estimates the tokens of a text from its bytes.
func tokens(raw []byte) int { return (len(raw) + 3) / 4 }

// toolsOf returns the result of tools/list.
func toolsOf(t *testing.T, c *agentClient) []byte {
	t.Helper()
	got, err := c.conn.Call(t.Context(), &upstream.Request{Method: "tools/list", Params: []byte("{}")}, nil)
	if err != nil || got.Error != nil {
		t.Fatal(err, got.Error)
	}
	return got.Result
}

// The list of all tools has at most 1,500 tokens, because every client carries it in every
// session.
func TestTheToolsCostLittle(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	for era, c := range map[string]*agentClient{"legacy": h.legacy("a"), "modern": h.modern("b")} {
		list := toolsOf(t, c)
		prefixed := strings.ReplaceAll(string(list), `{"name":"`, `{"name":"agent__`)
		if n := tokens([]byte(prefixed)); n > 1500 {
			t.Errorf("%s: %d tokens in %d bytes", era, n, len(prefixed))
		}
	}
}

// Every parameter in the list of tools has a description, and the listed schema has the
// properties, enumerations and required members of the one that arguments are checked with.
func TestEveryParameterIsDescribed(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	n := 0
	for tool := range rawjson.Elements(rawjson.Get(toolsOf(t, h.legacy("a")), "tools")) {
		name, _ := rawjson.GetString(tool, "name")
		input := rawjson.Get(tool, "inputSchema")
		if _, err := resolve(input); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var checked, listed struct {
			Properties map[string]struct {
				Type, Description string
				Enum              []string
			}
			Required []string
		}
		if err := json.Unmarshal(input, &listed); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(h.s.verbs[name].input, &checked); err != nil {
			t.Fatal(err)
		}
		if len(listed.Properties) != len(checked.Properties) || !slices.Equal(listed.Required, checked.Required) {
			t.Errorf("%s: lists %v, checks %v", name, listed, checked)
		}
		for p, v := range listed.Properties {
			n++
			if len(v.Description) < 4 || !slices.Equal(v.Enum, checked.Properties[p].Enum) || v.Type == "" && p != "to" {
				t.Errorf("%s of %s: %+v", p, name, v)
			}
		}
	}
	if n < 45 {
		t.Errorf("%d parameters", n)
	}
}

// The answer of an empty inbox as text has at most 60 tokens, in every form of the call.
func TestAnEmptyInboxCostsLittle(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	b := h.legacy("sender").registered("sender")
	for era, open := range map[string]func(string) *agentClient{"legacy": h.legacy, "modern": h.modern} {
		a := open("a-" + era).registered("a-" + era)
		for what, args := range map[string]m{"at once": {}, "after a wait": {"wait_ms": 5}, "a peek": {"peek": true}, "of a thread": {"thread_id": "01JC000000000000000000000A"}} {
			args["format"] = "text"
			r := a.call("inbox", args).want("")
			if n := tokens(r.raw); n > 60 {
				t.Errorf("%s, %s: %d tokens: %s", era, what, n, r.raw)
			}
		}
		for i := range 3 { // and after earlier messages
			b.call("send", m{"to": "a-" + era, "body": fmt.Sprint(i)}).want("")
			a.call("inbox", m{}).want("")
		}
		if r := a.call("inbox", m{"format": "text"}).want(""); tokens(r.raw) > 60 {
			t.Errorf("%s: %d tokens: %s", era, tokens(r.raw), r.raw)
		}
	}
}

// A body stands once in an answer, in the form that the caller asks for. An answer as text
// with one short message has at most 200 tokens.
func TestABodyStandsOnceInAnAnswer(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b := h.legacy("a").registered("a"), h.modern("b").registered("b")
	const body = "nineteen characters"
	a.call("send", m{"to": "b", "body": body}).want("")
	check := func(r *reply, structured bool) {
		t.Helper()
		if n := strings.Count(string(r.want("").raw), body); n != 1 {
			t.Errorf("the body stands %d times in %s", n, r.raw)
		}
		if (rawjson.Get(r.raw, "structuredContent") != nil) != structured || strings.Contains(r.text, body) == structured {
			t.Errorf("it stands in the wrong place: %s", r.raw)
		}
		if n := tokens(r.raw); n > 200 && !structured {
			t.Errorf("%d tokens: %s", n, r.raw)
		}
	}
	check(b.call("inbox", m{"peek": true, "format": "text"}), false)
	check(b.call("inbox", m{"peek": true, "format": "json"}), true)
	b.call("inbox", m{}).want("")
	b.call("inbox", m{}).want("")
	for _, c := range []*agentClient{a, b} {
		check(c.call("read", m{"format": "text"}), false)
		check(c.call("read", m{"format": "json"}), true)
	}
	if _, err := a.try(t.Context(), "inbox", `{"format":"text"}`, nil); err != nil {
		t.Error(err)
	}
}
