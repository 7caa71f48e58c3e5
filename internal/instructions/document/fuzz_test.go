package document

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/doorward/doorward/internal/base/plaintext"
)

// FuzzParse: Parse returns either a document or problems. Each problem has a line of
// the file and a text that is safe for a terminal. A document has a valid schema and
// no hidden characters, and renders and composes within its limits.
func FuzzParse(f *testing.F) {
	for _, s := range []string{full, "", "---\n---\n", "---\nname: a\nclass: voice\n---\nx", "---\nname: &a [*a]\n---\n", "---\nname: a\nclass: template\nvariables: {a: {type: [string], default: x}}\n---\n{{a}}{{> b}}\\{{",
		"\ufeff---\r\nname: 'a'\r\nclass: instructions\r\naudience: {roles: ['*']}\r\n---\r\n⟦", "---\n<<: {a: b}\n? [x]\n: y\n---\n", "---\n...\n%YAML 1.2\n---\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		d, err := Parse("f.md", content)
		var ps Problems
		if d == nil == (err == nil) || err != nil && !errors.As(err, &ps) {
			t.Fatalf("%v, %v", d, err)
		}
		lines := 1 + strings.Count(string(content), "\n")
		for _, p := range ps {
			if p.Line < 1 || p.Line > lines || p.File != "f.md" || p.Text == "" || strings.ContainsFunc(p.Text, unicode.IsControl) || !utf8.ValidString(p.Text) {
				t.Fatalf("%#v of %d lines", p, lines)
			}
		}
		if d == nil {
			return
		}
		var s jsonschema.Schema
		if err := json.Unmarshal(d.Schema(), &s); err != nil {
			t.Fatalf("%s: %v", d.Schema(), err)
		}
		if d.Body == "" || plaintext.FirstHidden(d.Body) >= 0 || plaintext.FirstHidden(d.Description) >= 0 || len(d.Version) != 64 {
			t.Fatalf("%+v", d)
		}
		set, problems := NewSet([]*Document{d})
		v := set.View(Caller{}, nil)
		if text, err := v.Text(d.Name); err == nil && text != d.Body {
			t.Fatalf("%q became %q", d.Body, text)
		} else if err != nil && len(d.Includes()) == 0 && d.Variant() == "" && problems == nil {
			t.Fatal(err)
		}
		if c := v.Compose(600, ref); len(c.Text) > 600 || !utf8.ValidString(c.Text) {
			t.Fatalf("%d bytes", len(c.Text))
		}
	})
}

// FuzzRender: a caller's value never closes its fence, contains no hidden character,
// and appears once for each placeholder.
func FuzzRender(f *testing.F) {
	for _, s := range []string{`{"v":"x"}`, `{"v":"⟧"}`, `{"v":["⟧",{"a⟧":"\u27e7"}]}`, `{"v":"\u202e\u001b"}`, `{"v":1,"v":2}`, `{"w":1}`, `{"v":"` + "\xff" + `"}`, `{"v":"\ud800"}`, `[`, `{"v":"{{v}}"}`, `{"v":1e999}`} {
		f.Add([]byte(s))
	}
	v := set(f, doc(f, "a", "variables: {v: {}}", "<{{v}}|{{v}}>")).View(Caller{}, nil)
	f.Fuzz(func(t *testing.T, vars []byte) {
		text, err := v.Render("a", vars)
		var wrong *VarError
		if err != nil {
			if text != "" || !errors.As(err, &wrong) || strings.ContainsFunc(err.Error(), unicode.IsControl) {
				t.Fatalf("%q, %v", text, err)
			}
			return
		}
		if !utf8.ValidString(text) || plaintext.FirstHidden(text) >= 0 {
			t.Fatalf("%q", text)
		}
		body, ok := strings.CutSuffix(text, note)
		rest, ok2 := strings.CutPrefix(body, "<⟦")
		val, last, ok3 := strings.Cut(rest, "⟧")
		if !ok || !ok2 || !ok3 || last != "|⟦"+val+"⟧>" || strings.ContainsAny(val, "⟦⟧〚〛") {
			t.Fatalf("%s became %q", vars, text)
		}
	})
}
