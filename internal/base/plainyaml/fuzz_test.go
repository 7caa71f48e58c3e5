package plainyaml_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/doorward/doorward/internal/base/plainyaml"
)

// FuzzParse: content becomes a tree or an error on one of its lines. A walked
// tree has no key with a fault. A tree without faults has no anchors, aliases or
// tags, and where the content is JSON too, it equals the JSON value.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "a: b\nc: [1, ~]\n", "a: &x\n  <<: *x\n", "? !!str a\n: ! 1\n", "a: b\r! c: 'd'\r\n", "---\na: \"\\u2028é\"\n...\n",
		"\ufeff{\"a\": [1e5, true, null, \"\\n\"]}", "# c\u2028a: b", "%YAML 1.1\n---\n", "- |2-\n   x\n- >\n  y\n# z\n", "a: b\n---\n", "[[[[{a: b, a: c}]]]]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		root, e := plainyaml.Parse(content)
		if e != nil {
			if root != nil || e.Kind == 0 || e.Text == "" || e.Line < 1 || e.Line > 1+bytes.Count(content, []byte("\n")) {
				t.Fatalf("%v, %#v", root, e)
			}
			return
		}
		if root == nil {
			return
		}
		found := faults(root)
		nodes := below(root, 0, t)
		if len(found) > 0 {
			return
		}
		for _, n := range nodes {
			stands(t, content, n)
			// A bare number is compared by its digits, without the type that YAML gives it.
			if number := strings.ContainsAny(n.Value[:min(1, len(n.Value))], "-0123456789"); number && n.Style == 0 && json.Valid([]byte(n.Value)) {
				n.Tag = "!!number"
			}
		}
		if body := bytes.TrimPrefix(content, []byte("\ufeff")); json.Valid(body) {
			if got, want := tree(root), asJSON(t, body); got != want {
				t.Fatalf("%q became %s, and is JSON for %s", content, got, want)
			}
		}
	})
}

// below lists the nodes of a walked tree, and checks its depth and its keys.
func below(n *yaml.Node, depth int, t *testing.T) []*yaml.Node {
	t.Helper()
	if depth > plainyaml.MaxDepth && len(n.Content) > 0 {
		t.Fatal("a tree is deeper than the limit")
	}
	all := []*yaml.Node{n}
	if n.Kind != yaml.MappingNode {
		for _, child := range n.Content {
			all = append(all, below(child, depth+1, t)...)
		}
		return all
	}
	seen := make(map[string]bool)
	for k, v := range plainyaml.Pairs(n) {
		if k.Kind != yaml.ScalarNode || k.Tag != "!!str" || k.Anchor != "" || k.Style&yaml.TaggedStyle != 0 || seen[k.Value] {
			t.Fatalf("the key %q is left", k.Value)
		}
		seen[k.Value] = true
		all = append(append(all, k), below(v, depth+1, t)...)
	}
	return all
}

// stands checks a node of a tree without faults: it has no anchor, alias or tag,
// and its quote is at the position that the node names. A tag that was missed
// would be at that position instead.
func stands(t *testing.T, content []byte, n *yaml.Node) {
	t.Helper()
	if n.Kind == yaml.AliasNode || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 {
		t.Fatalf("%q is not plain, and no fault", n.Value)
	}
	quote := map[yaml.Style]string{yaml.DoubleQuotedStyle: `"`, yaml.SingleQuotedStyle: "'", yaml.LiteralStyle: "|", yaml.FoldedStyle: ">"}[n.Style]
	if quote == "" || n.Kind != yaml.ScalarNode {
		return
	}
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n", "\ufeff", "").Replace(string(content))
	line := []rune(strings.Split(text, "\n")[n.Line-1])
	if got := string(line[n.Column-1]); got != quote {
		t.Fatalf("%q in %q begins with %q", n.Value, content, got)
	}
}

// asJSON formats a JSON text as tree does, with the keys in their order.
func asJSON(t *testing.T, content []byte) string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.UseNumber()
	var value func() string
	value = func() string {
		tok, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		switch v := tok.(type) {
		case json.Delim:
			var out []string
			for dec.More() {
				if v == '[' {
					out = append(out, value())
					continue
				}
				key, err := dec.Token()
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, fmt.Sprint(key)+":"+value())
			}
			if _, err := dec.Token(); err != nil {
				t.Fatal(err)
			}
			return map[json.Delim]string{'[': "[", '{': "{"}[v] + strings.Join(out, " ") + map[json.Delim]string{'[': "]", '{': "}"}[v]
		case json.Number:
			return fmt.Sprintf("number%q", v.String())
		case bool:
			return fmt.Sprintf("bool%q", fmt.Sprint(v))
		case nil:
			return `null"null"`
		}
		return fmt.Sprintf("str%q", tok)
	}
	return value()
}
