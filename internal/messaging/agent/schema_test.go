package agent

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

func TestEveryVerbIsInTheTableAndInTheList(t *testing.T) {
	t.Parallel()
	s := &Server{o: Options{Limits: Limits{}.withDefaults()}}
	s.assemble()
	if err := s.loadVerbs(); err != nil {
		t.Fatal(err)
	}
	want := strings.Fields("register list_peers send inbox wait ack message_status read unregister spawn spawn_status spawn_stop")
	var listed []string
	for tool := range rawjson.Elements(s.tools) {
		name, _ := rawjson.GetString(tool, "name")
		listed = append(listed, name)
		v := s.verbs[name]
		if v == nil || v.do == nil || !strings.HasPrefix(v.action, "agent.") || v.accepts == nil {
			t.Errorf("%s is listed and cannot be called in full", name)
		}
		text, _ := rawjson.GetString(tool, "description")
		if len(text) >= 2048 || len(text) < 20 {
			t.Errorf("%s: a description of %d bytes", name, len(text))
		}
	}
	if !slices.Equal(listed, want) || len(s.verbs) != len(want) {
		t.Errorf("listed %v", listed)
	}
	for name, readOnly := range map[string]bool{"list_peers": true, "wait": true, "message_status": true, "read": true, "spawn_status": true, "inbox": false, "send": false} {
		if (s.verbs[name].hints == reads) != readOnly {
			t.Errorf("readOnlyHint of %s", name)
		}
	}
}

func TestTheSchemasAreValidAndClosed(t *testing.T) {
	t.Parallel()
	s, err := loadSchemas(65536, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, sc := range s {
		if _, err := sc.accepts(); err != nil {
			t.Errorf("input schema of %s: %v", name, err)
		}
		for what, raw := range map[string][]byte{"input": sc.input, "output": sc.output} {
			if err := wire.ValidateValue(raw); err != nil {
				t.Errorf("%s of %s: %v", what, name, err)
			}
			if regexp.MustCompile(`"@|"optional"|"is"`).Match(raw) {
				t.Errorf("%s of %s has words of the source notation in it: %s", what, name, raw)
			}
			if _, err := resolve(raw); err != nil {
				t.Errorf("%s of %s: %v", what, name, err)
			}
		}
		if kind, _ := rawjson.GetString(sc.output, "type"); kind != "object" {
			t.Errorf("output of %s is no object", name)
		}
		checkClosed(t, name, sc.input)
	}
	in := string(s["send"].input)
	if !strings.Contains(in, `"maxLength":65536`) || !strings.Contains(in, `"required":["to","body"]`) {
		t.Error(in)
	}
	if small, _ := loadSchemas(100, time.Hour); !strings.Contains(string(small["send"].input), `"body":{"type":"string","minLength":1,"maxLength":100,`) {
		t.Error("the configured size is not in the schema")
	}
}

// checkClosed fails for input objects that would accept any property.
func checkClosed(t *testing.T, name string, raw []byte) {
	t.Helper()
	if len(raw) == 0 || raw[0] != '{' {
		for v := range rawjson.Elements(raw) {
			checkClosed(t, name, v)
		}
		return
	}
	if string(rawjson.Get(raw, "type")) == `"object"` && rawjson.Get(raw, "additionalProperties") == nil {
		t.Errorf("an input object of %s is open: %s", name, raw)
	}
	for _, v := range rawjson.Members(raw) {
		checkClosed(t, name, v)
	}
}

func TestArgumentsAreChecked(t *testing.T) {
	t.Parallel()
	s, err := loadSchemas(100, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ tool, args, code string }{
		{"send", `{"to":"a","body":"x"}`, ""},
		{"send", `{"to":["a","b@c","p/q","01JC000000000000000000000A"],"body":"x","refs":[{"uri":"u","size":3}]}`, ""},
		{"send", `{"to":"a","body":"x","from":"operator"}`, "INVALID_ARGUMENT"},
		{"send", `{"to":"a","body":"x","sender":"planner"}`, "INVALID_ARGUMENT"},
		{"send", `{"to":"a","body":"x","_meta":{"from":"b"}}`, "INVALID_ARGUMENT"},
		{"send", `{"to":"a","body":"x","refs":[{"uri":"u","from":"b"}]}`, "INVALID_ARGUMENT"},
		{"send", `{"to":"A","body":"x"}`, "INVALID_ARGUMENT"},
		{"send", `{"to":"all*","body":"x"}`, "INVALID_ARGUMENT"},
		{"send", `{"to":["a","a"],"body":"x"}`, "INVALID_ARGUMENT"},
		{"send", `{"to":[],"body":"x"}`, "INVALID_ARGUMENT"},
		{"send", `{"to":"a","body":"x","priority":"high"}`, "INVALID_ARGUMENT"},
		{"send", `{"to":"a","body":"x","ack_deadline_s":60}`, "INVALID_ARGUMENT"},
		{"send", `{"to":"a","body":""}`, "INVALID_ARGUMENT"},
		{"send", `{"to":"a"}`, "INVALID_ARGUMENT"},
		{"send", `{"to":"a","body":7}`, "INVALID_ARGUMENT"},
		{"send", `{"to":"a","body":"` + strings.Repeat("é", 51) + `"}`, "TOO_LARGE"},
		{"send", `{"to":"a","body":"` + strings.Repeat("x", 101) + `"}`, "TOO_LARGE"},
		{"send", `{"to":"a","body":"x","ttl_s":59}`, "INVALID_ARGUMENT"},
		{"send", `{"to":"a","body":"x","ttl_s":60.0}`, ""},
		{"send", `{"to":"a","body":"x","ttl_s":60.5}`, "INVALID_ARGUMENT"},
		{"send", `{"to":"a","body":"x","refs":[{"uri":"u","size":1e300}]}`, "INVALID_ARGUMENT"},
		{"send", `{"to":"a","body":"x","refs":[{"uri":"u","size":1e999}]}`, "INVALID_ARGUMENT"},
		{"send", `["a"]`, "INVALID_ARGUMENT"},
		{"send", `"a"`, "INVALID_ARGUMENT"},
		{"register", ``, ""},
		{"register", `{}`, ""},
		{"register", `{"name":"a\u200b"}`, "INVALID_ARGUMENT"},
		{"register", `{"name":"Planner"}`, "INVALID_ARGUMENT"},
		{"register", `{"peer_id":"01JC000000000000000000000A"}`, "INVALID_ARGUMENT"},
		{"register", `{"principal":"uid:0"}`, "INVALID_ARGUMENT"},
		{"unregister", `{"name":"somebody"}`, "INVALID_ARGUMENT"},
		{"inbox", `{"after":"short"}`, "INVALID_ARGUMENT"},
		{"inbox", `{"wait_ms":295001}`, "INVALID_ARGUMENT"},
		{"ack", `{"message_ids":["x"]}`, "INVALID_ARGUMENT"},
	} {
		a, err := s[c.tool].parseArgs([]byte(c.args))
		code := ""
		if err != nil {
			code = problemOf(err).code
		}
		if code != c.code || err == nil && a == nil {
			t.Errorf("%s %.80s: %v", c.tool, c.args, err)
		}
	}
}

func TestAnArgumentThatDoesNotFitIsNamedWithoutItsValue(t *testing.T) {
	t.Parallel()
	s, err := loadSchemas(100, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s["send"].parseArgs([]byte(`{"to":"a","body":"x","subject":"` + strings.Repeat("canary ", 40) + `"}`))
	if p := problemOf(err); !strings.Contains(p.text, "subject") || strings.Contains(p.text, "canary") {
		t.Error(p.text)
	}
	_, err = s["send"].parseArgs([]byte(`{"to":"a","body":"x","<system-reminder>":1}`))
	if p := problemOf(err); strings.ContainsAny(p.text, "<>") {
		t.Error(p.text)
	}
}

func TestEveryCodeHasItsText(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("../mail/errors.go")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile(`= "([A-Z_]+)"`).FindAllStringSubmatch(string(src), -1)
	if len(codes) < 25 {
		t.Fatalf("%d codes", len(codes))
	}
	for _, c := range codes {
		if kinds[c[1]].text == "" {
			t.Errorf("%s has no text", c[1])
		}
	}
	s := &Server{o: Options{Limits: Limits{}.withDefaults()}}
	s.assemble()
	if err := s.loadVerbs(); err != nil {
		t.Fatal(err)
	}
	for name, v := range s.verbs {
		for what, schema := range outputs(t, v) {
			for code := range kinds {
				raw, err := (&problem{code: code, retry: 5, details: map[string]any{"rule": "r"}}).answer().encode(true)
				if err != nil {
					t.Fatal(err)
				}
				var out map[string]any
				if err := json.Unmarshal(rawjson.Get(raw, "structuredContent"), &out); err != nil {
					t.Fatal(err)
				}
				if err := schema.Validate(out); err != nil {
					t.Errorf("%s: the error does not fit the %s schema: %v\n%s", name, what, err, raw)
				}
			}
		}
	}
}

// outputs returns the output schema of a verb as it is published, and a copy that allows no
// property which it does not name.
func outputs(t testing.TB, v *verb) map[string]*jsonschema.Resolved {
	t.Helper()
	out := make(map[string]*jsonschema.Resolved)
	for what, text := range map[string][]byte{"published": v.output, "closed": closed(v.output)} {
		schema, err := resolve(text)
		if err != nil {
			t.Fatal(err)
		}
		out[what] = schema
	}
	return out
}

// closed returns a schema that allows no property which it does not name.
func closed(raw []byte) []byte {
	switch raw[0] {
	case '[':
		var out []byte
		for v := range rawjson.Elements(raw) {
			out = append(append(out, ','), closed(v)...)
		}
		return bracketed('[', out, ']')
	case '{':
		out := raw
		for k, v := range rawjson.Members(raw) {
			if k != "const" && k != "enum" && k != "default" && k != "required" {
				out = rawjson.Set(out, rawjson.Edit{Key: k, Value: closed(v)})
			}
		}
		if rawjson.Get(raw, "properties") != nil && rawjson.Get(raw, "additionalProperties") == nil {
			out = rawjson.Set(out, rawjson.Edit{Key: "additionalProperties", Value: []byte("false")})
		}
		return out
	}
	return raw
}

// The refusal of an argument names the argument and its schema, without its value, so that the
// caller can correct the call.
func TestAMisfitSaysWhatFits(t *testing.T) {
	t.Parallel()
	s, err := loadSchemas(100, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ tool, args, want string }{
		{"send", `{"to":"a","body":"x","ttl_s":59}`, `the argument ttl_s does not fit its schema {"default":3600,"maximum":604800,"minimum":60,"type":"integer"}`},
		{"send", `{"to":"a"}`, "the argument body is missing"},
		{"inbox", `{"max":"all"}`, `the argument max does not fit its schema {"default":20,"maximum":50,"minimum":1,"type":"integer"}`},
		{"send", `{"to":"Secret","body":"x"}`, `the argument to does not fit its schema (lower-case name, name@namespace or peer_id; operator is the human)`},
		{"ack", `{"message_ids":["secret"]}`, `the argument message_ids does not fit its schema`},
	} {
		_, err := s[c.tool].parseArgs([]byte(c.args))
		if err == nil {
			t.Errorf("%s %s is accepted", c.tool, c.args)
			continue
		}
		if got := problemOf(err).text; !strings.HasPrefix(got, c.want) || strings.Contains(got, "secret") {
			t.Errorf("%s %s: %q, want %q", c.tool, c.args, got, c.want)
		}
	}
}
