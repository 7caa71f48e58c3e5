package resolve

import (
	"errors"
	"testing"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

func TestRequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what, route, method, params string
		server, name, carried       string // carried: the params for the server; "": as they came
		err                         error
	}{
		{what: "a tool of one server", route: "text", method: "tools/call", params: `{"name":"echo"}`, server: "text", name: "echo"},
		{what: "names stay as they are there", route: "text", method: "tools/call", params: `{"name":"notes__x"}`, server: "text", name: "notes__x"},
		{what: "a tool on the aggregate", method: "tools/call", params: `{"a":1.0,"name":"text__echo"}`, server: "text", name: "echo", carried: `{"a":1.0,"name":"echo"}`},
		{what: "the first joint splits", method: "prompts/get", params: `{"name":"text____x__y"}`, server: "text", name: "__x__y", carried: `{"name":"__x__y"}`},
		{what: "a bare server name", method: "tools/call", params: `{"name":"text"}`, err: ErrName},
		{what: "a bare server name as a prompt", method: "prompts/get", params: `{"name":"text"}`, err: ErrName},
		{what: "a server and no tool", method: "tools/call", params: `{"name":"text__"}`, err: ErrName},
		{what: "a tool and no server", method: "tools/call", params: `{"name":"__echo"}`, err: ErrName},
		{what: "half a joint", method: "tools/call", params: `{"name":"text_echo"}`, err: ErrName},
		{what: "no name", route: "text", method: "tools/call", params: `{}`, err: ErrName},
		{what: "no params", route: "text", method: "prompts/get", err: ErrName},
		{what: "an empty name", route: "text", method: "tools/call", params: `{"name":""}`, err: ErrName},
		{what: "a null", route: "text", method: "tools/call", params: `{"name":null}`, err: ErrName},
		{what: "a list of one name", route: "text", method: "tools/call", params: `{"name":["delete"]}`, err: ErrName},
		{what: "a name in the place of a URI", route: "text", method: "resources/read", params: `{"name":"file:///a"}`, err: ErrName},
		{what: "a resource", method: "resources/read", params: `{"uri":"doorward://text/file:///a"}`, server: "text", name: "file:///a", carried: `{"uri":"file:///a"}`},
		{what: "a server as a URI", method: "resources/read", params: `{"uri":"doorward://text"}`, err: ErrName},
		{what: "a server as a bare URI", method: "resources/subscribe", params: `{"uri":"text"}`, err: ErrName},
		{what: "a URI of nothing", method: "resources/unsubscribe", params: `{"uri":"doorward://text/"}`, err: ErrName},
		{what: "another scheme", method: "resources/read", params: `{"uri":"DOORWARD://text/a"}`, err: ErrName},

		{what: "a prompt's completion", method: "completion/complete", params: `{"ref":{"type":"ref/prompt","name":"text__x"}}`, server: "text", name: "x", carried: `{"ref":{"type":"ref/prompt","name":"x"}}`},
		{what: "a resource's completion", route: "text", method: "completion/complete", params: `{"ref":{"type":"ref/resource","uri":"file:///{p}"}}`, server: "text", name: "file:///{p}"},
		{what: "a ref with both", route: "text", method: "completion/complete", params: `{"ref":{"type":"ref/prompt","name":"x","uri":"y"}}`, err: ErrName},
		{what: "a ref with both, one null", route: "text", method: "completion/complete", params: `{"ref":{"type":"ref/resource","name":null,"uri":"y"}}`, err: ErrName},
		{what: "a ref whose type does not fit", route: "text", method: "completion/complete", params: `{"ref":{"type":"ref/prompt","uri":"y"}}`, err: ErrName},
		{what: "a ref without a type", route: "text", method: "completion/complete", params: `{"ref":{"name":"x"}}`, err: ErrName},
		{what: "a ref that reads differently without case", route: "text", method: "completion/complete", params: `{"ref":{"type":"ref/prompt","name":"x","Name":"y"}}`, err: ErrName},
		{what: "a ref that is a text", route: "text", method: "completion/complete", params: `{"ref":"x"}`, err: ErrName},
		{what: "a bare server name in a ref", method: "completion/complete", params: `{"ref":{"type":"ref/prompt","name":"text"}}`, err: ErrName},

		{what: "a list of all servers", method: "tools/list"},
		{what: "a list of one", route: "text", method: "tools/list", params: `{"name":"x"}`, server: "text"},
		{what: "an unknown method, on one server", route: "text", method: "future/method", params: `{"name":"x"}`, server: "text"},
		{what: "on the aggregate, with a name", method: "future/method", params: `{"name":"text__x"}`, server: "text", carried: `{"name":"x"}`},
		{what: "with a URI", method: "future/method", params: `{"uri":"doorward://text/a","x":1.0}`, server: "text", carried: `{"uri":"a","x":1.0}`},
		{what: "with both", method: "future/method", params: `{"uri":"doorward://text/a","name":"text__a"}`, err: ErrMethod},
		{what: "with a name that reads differently without case", method: "future/method", params: `{"name":"text__a","Name":"notes__a"}`, err: ErrMethod},
		{what: "with none", method: "future/method", params: `{"x":"text__a"}`, err: ErrMethod},
		{what: "with a name of no server", method: "future/method", params: `{"name":"a"}`, err: ErrName},
		{what: "a server's question from a client", method: "sampling/createMessage", params: `{"name":"text__a"}`, err: ErrMethod},
		{what: "a list that is a question", method: "roots/list", params: `{"name":"text__a"}`, err: ErrMethod},
		{what: "an unknown list", method: "future/things/list"},
		{what: "a task on the aggregate", method: "tasks/get", params: `{"taskId":"text__7"}`, server: "text", carried: `{"taskId":"7"}`},
		{what: "a task of no server", method: "tasks/cancel", params: `{"taskId":"7"}`, err: ErrName},
		{what: "a skill on the aggregate", method: "skills/get", params: `{"uri":"doorward://text/skill://a/SKILL.md"}`, server: "text", name: "skill://a/SKILL.md", carried: `{"uri":"skill://a/SKILL.md"}`},
		{what: "a directory", route: "text", method: "resources/directory/read", params: `{"uri":"skill://a"}`, server: "text", name: "skill://a"},
		{what: "a method in another case", route: "text", method: "Tools/Call", params: `{"name":"x"}`, err: ErrMethod},
		{what: "with a space", route: "text", method: "tools/call ", params: `{"name":"x"}`, err: ErrMethod},
		{what: "with a letter that folds", route: "text", method: "tool\u017f/call", params: `{"name":"x"}`, err: ErrMethod},
		{what: "a notification that wants an answer", route: "text", method: "notifications/cancelled", err: ErrMethod},
		{what: "the same in another case", route: "text", method: "Notifications/Cancelled", err: ErrMethod},
	} {
		got, err := Request(c.route, c.method, wire.IntID(1), []byte(c.params))
		if !errors.Is(err, c.err) || got.Server() != c.server || got.Name() != c.name {
			t.Errorf("%s: %q %q, %v; want %q %q, %v", c.what, got.Server(), got.Name(), err, c.server, c.name, c.err)
		}
		if err != nil {
			if got.Method() != "" || got.Params() != nil {
				t.Errorf("%s: half a target: %+v", c.what, got)
			}
			continue
		}
		if c.carried == "" {
			c.carried = c.params
		}
		if string(got.Params()) != c.carried || got.Method() != c.method {
			t.Errorf("%s: carried as %s %s", c.what, got.Method(), got.Params())
		}
		if _, err := Request(c.route, c.method, nil, []byte(c.params)); !errors.Is(err, ErrNoID) {
			t.Errorf("%s, without an id: %v", c.what, err)
		}
	}
}

func TestNotice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ route, method, params, server, forwarded string }{
		{"text", "notifications/roots/list_changed", `{"name":"x"}`, "text", `{"name":"x"}`},
		{"text", "notifications/future", `{}`, "text", `{}`},
		{"", "notifications/future", `{"name":"text__x","y":1.0}`, "text", `{"name":"x","y":1.0}`},
		{"", "notifications/future", `{"uri":"doorward://text/a:b"}`, "text", `{"uri":"a:b"}`},
		{"text", "tools/call", `{}`, "", ""}, {"text", "Notifications/future", `{}`, "", ""}, {"text", "", `{}`, "", ""},
		{"", "notifications/future", `{}`, "", ""}, {"", "notifications/future", `{"name":"text"}`, "", ""},
		{"", "notifications/future", `{"name":"text__x","uri":"doorward://other/a"}`, "", ""}, {"", "notifications/future", `{"NAME":"text__x"}`, "", ""},
	} {
		got, err := Notice(c.route, c.method, []byte(c.params))
		if (err == nil) != (c.server != "") || err == nil && (got.Server() != c.server || got.Method() != c.method || got.Name() != "" || string(got.Params()) != c.forwarded) {
			t.Errorf("%+v: %+v, %v", c, got, err)
		}
	}
}

// With takes params that Doorward has changed only if they name what was
// decided.
func TestWithKeepsTheName(t *testing.T) {
	t.Parallel()
	for method, c := range map[string]struct{ params, same, other string }{
		"tools/call":          {`{"name":"a"}`, `{"x":1,"name":"\u0061"}`, `{"name":"b"}`},
		"resources/read":      {`{"uri":"a"}`, `{"uri":"a","_meta":{}}`, `{"uri":["a"]}`},
		"completion/complete": {`{"ref":{"type":"ref/prompt","name":"a"}}`, `{"ref":{"name":"a","type":"ref/prompt"}}`, `{"ref":{"type":"ref/resource","uri":"a"}}`},
	} {
		target, err := Request("text", method, wire.IntID(1), []byte(c.params))
		if err != nil {
			t.Fatal(err)
		}
		if with, ok := target.With([]byte(c.same)); !ok || string(with.Params()) != c.same || with.Name() != "a" {
			t.Errorf("%s: %s was not taken", method, c.same)
		}
		for _, bad := range []string{c.other, `{}`, ``} {
			if _, ok := target.With([]byte(bad)); ok {
				t.Errorf("%s: %q was taken", method, bad)
			}
		}
		if other := target.At("notes"); other.Server() != "text" {
			t.Errorf("%s went to %s", method, other.Server())
		}
	}
}

// TestOnlyANamedTargetIsRenamed: an empty name, and a target without one, change
// nothing, and a resource is not another kind of reference.
func TestOnlyANamedTargetIsRenamed(t *testing.T) {
	t.Parallel()
	named, err := Request("text", "tools/call", wire.IntID(1), []byte(`{"name":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := named.Renamed("b"); got.Name() != "b" || string(got.Params()) != `{"name":"b"}` {
		t.Errorf("%q %s", got.Name(), got.Params())
	}
	if got := named.Renamed(""); got.Name() != "a" || string(got.Params()) != `{"name":"a"}` {
		t.Errorf("an empty name: %q %s", got.Name(), got.Params())
	}
	list, err := Request("text", "tools/list", wire.IntID(1), []byte(`{"cursor":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := list.Renamed("b"); got.Name() != "" || string(got.Params()) != `{"cursor":"x"}` {
		t.Errorf("a list was named: %q %s", got.Name(), got.Params())
	}
	ref, err := Request("text", "completion/complete", wire.IntID(1), []byte(`{"ref":{"type":"ref/prompt","name":"a"}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{`{"ref":{"type":"ref/resource","uri":"a"}}`, `{"ref":{"type":"ref/unknown","name":"a"}}`, `{"ref":"a"}`} {
		if _, ok := ref.With([]byte(bad)); ok {
			t.Errorf("%s was taken", bad)
		}
	}
}

// A target of the aggregate is the target that the server's own route makes of
// its params, whatever its name is made of, and no part of it is missing.
func FuzzRequest(f *testing.F) {
	for _, name := range []string{"text", "text__", "text__echo", "__", "text____x", "doorward://text/file:///a", "doorward://text", "doorward:///x"} {
		for _, method := range []string{"tools/call", "prompts/get", "resources/read", "completion/complete", "tools/list", "future/x"} {
			f.Add(method, name, byte(0))
		}
	}
	f.Fuzz(func(t *testing.T, method, name string, form byte) {
		text := string(rawjson.AppendQuote(nil, name))
		forms := []string{`{"name":` + text + `}`, `{"uri":` + text + `}`, `{"ref":{"type":"ref/prompt","name":` + text + `}}`,
			`{"ref":{"type":"ref/resource","uri":` + text + `}}`, `{"name":` + text + `,"uri":` + text + `}`, `{"ref":` + text + `}`}
		params := []byte(forms[int(form)%len(forms)])
		all, err := Request("", method, wire.IntID(1), params)
		if err != nil || all.Server() == "" {
			if all.Name() != "" {
				t.Errorf("%s %s: a name without a server: %+v", method, params, all)
			}
			return
		}
		if at, _ := placeOf(method, params); all.Name() == "" && at != nowhere {
			t.Errorf("%s %s: a server without a name: %+v", method, params, all)
		}
		one, err := Request(all.Server(), method, wire.IntID(1), all.Params())
		if err != nil || one.Name() != all.Name() {
			t.Errorf("%s %s: decided as %q, carried as %q, %v", method, params, all.Name(), one.Name(), err)
		}
	})
}
