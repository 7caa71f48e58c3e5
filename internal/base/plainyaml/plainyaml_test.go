package plainyaml_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/doorward/doorward/internal/base/plainyaml"
)

// faults walks a tree and lists its faults, each with a place such as .a.b[0].
func faults(root *yaml.Node) (out []string) {
	plainyaml.Walk{
		Key:  func(in string, k, _ *yaml.Node) string { return in + "." + k.Value },
		Item: func(in string, i int, _ *yaml.Node) string { return fmt.Sprintf("%s[%d]", in, i) },
		Fault: func(at string, f plainyaml.Fault) {
			if f.InKey {
				at += " key"
			}
			out = append(out, fmt.Sprintf("%d:%s: %s", f.Node.Line, at, f.Text))
		},
	}.Tree(root)
	return out
}

// tree formats a walked tree as text.
func tree(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		var out []string
		for k, v := range plainyaml.Pairs(n) {
			out = append(out, k.Value+":"+tree(v))
		}
		return "{" + strings.Join(out, " ") + "}"
	case yaml.SequenceNode:
		var out []string
		for _, item := range n.Content {
			out = append(out, tree(item))
		}
		return "[" + strings.Join(out, " ") + "]"
	case yaml.AliasNode:
		return "*"
	}
	return fmt.Sprintf("%s%q", strings.TrimPrefix(n.Tag, "!!"), n.Value)
}

func TestPlainYAMLIsReadAsItStands(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"a: b\nc: [1, 2.5, true, null, ~, '1']\n":  `{a:str"b" c:[int"1" float"2.5" bool"true" null"null" null"~" str"1"]}`,
		"---\na: {b: c}\n...\n":                    `{a:{b:str"c"}}`,
		"\ufeffa: b\r\nc: d\r\n":                   `{a:str"b" c:str"d"}`,
		"- a\n- - b\n":                             `[str"a" [str"b"]]`,
		`{"a": "x\u2028y", "b": [1e5]}`:            `{a:str"x` + `\u2028` + `y" b:[float"1e5"]}`,
		"a: '!x'\nb: x ! y\nc: hey!\nd: |\n  !x\n": `{a:str"!x" b:str"x ! y" c:str"hey!" d:str"!x\n"}`,
		"a: 100 %\nb: |\n  %x\n":                   `{a:str"100 %" b:str"%x\n"}`,
		"\"<<\": a\n'*': \"&b\"\n":                 `{<<:str"a" *:str"&b"}`,
	} {
		root, err := plainyaml.Parse([]byte(content))
		if err != nil {
			t.Errorf("%q: %v", content, err)
			continue
		}
		if f := faults(root); f != nil || tree(root) != want {
			t.Errorf("%q became %s, want %s; faults %q", content, tree(root), want, f)
		}
	}
	for _, content := range []string{"", "# nothing\n", "\ufeff"} {
		if root, err := plainyaml.Parse([]byte(content)); root != nil || err != nil {
			t.Errorf("%q became %v, %v", content, root, err)
		}
	}
}

func TestBytesThatAreNotOnePlainDocumentAreRefusedOnTheirLine(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		content string
		kind    plainyaml.Kind
		line    int
		words   string
	}{
		"not UTF-8":                          {"a: b\nc: \xff\n", plainyaml.NotText, 2, "not UTF-8"},
		"UTF-16":                             {"\xff\xfea\x00", plainyaml.NotText, 1, "not UTF-8"},
		"NUL, where the library would stop":  {"a: b\n\x00c: d\n", plainyaml.NotText, 2, "not UTF-8"},
		"a comment that ends for YAML 1.1":   {"a: b\n# nothing\u2028c: d\n", plainyaml.NotPlain, 2, "U+2028"},
		"a paragraph separator":              {"# nothing\u2029c: d\n", plainyaml.NotPlain, 1, "U+2029"},
		"a next line":                        {"a: b\u0085c: d\n", plainyaml.NotPlain, 1, "U+0085"},
		"a mark that is a letter or nothing": {"a: b\n\ufeffc: d\n", plainyaml.NotPlain, 2, "byte order mark"},
		"two marks":                          {"\ufeff\ufeffa: b\n", plainyaml.NotPlain, 1, "byte order mark"},
		"a directive":                        {"%YAML 1.1\n---\na: no\n", plainyaml.NotPlain, 1, "directives"},
		"a directive behind a mark":          {"\ufeff%TAG ! x\n---\na: no\n", plainyaml.NotPlain, 1, "directives"},
		"a directive behind a return":        {"# x\r%YAML 1.1\n---\na: no\n", plainyaml.NotPlain, 1, "directives"},
		"a directive in the middle":          {"a: b\n...\n%YAML 1.1\n---\n", plainyaml.NotPlain, 3, "directives"},
		"a second document":                  {"a: b\n---\nc: d\n", plainyaml.Second, 2, "second document"},
		"a second document without a line":   {"a: b\n...\nc: d\n", plainyaml.Malformed, 3, "document start"},
		"a second document that is broken":   {"a: b\n---\nc: d\n}\n", plainyaml.Malformed, 4, "did not find expected"},
		"a bracket that is not closed":       {"a: [b\nc: d\n", plainyaml.Malformed, 1, "did not find expected"},
		"a quote that is not closed":         {"a: b\nc: \"d\ne: f\n", plainyaml.Malformed, 2, "unexpected end of stream"},
		"a tab":                              {"a:\n\tb: c\n", plainyaml.Malformed, 2, "cannot start any token"},
		"an error in the last line":          {"a: b\nc: }", plainyaml.Malformed, 2, "did not find expected"},
		"a control character":                {"a: b\nc: \x07\n", plainyaml.Malformed, 2, "control characters"},
		"an alias without its anchor":        {"a: b\nc: *hunter2\n", plainyaml.UnknownAlias, 2, "hunter2"},
		"an alias before its anchor":         {"a: *x\nb: &x c\n", plainyaml.UnknownAlias, 1, "'x'"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			root, err := plainyaml.Parse([]byte(c.content))
			if root != nil || err == nil {
				t.Fatalf("%q became %s", c.content, tree(root))
			}
			if err.Kind != c.kind || err.Line != c.line || !strings.Contains(err.Text, c.words) || strings.Contains(err.Text, "line ") && err.Kind == plainyaml.Malformed {
				t.Errorf("%q: kind %d, %v; want kind %d on line %d with %q", c.content, err.Kind, err, c.kind, c.line, c.words)
			}
		})
	}
}

func TestAmbiguousYAMLIsAFault(t *testing.T) {
	t.Parallel()
	const (
		alias  = "aliases (*name) are not supported here; write the value itself, and put a text that begins with * in quotes"
		anchor = "anchors (&name) are not supported here; put a text that begins with & in quotes"
		tag    = "tags (!name) are not supported here; put a text that begins with ! in quotes"
		merge  = "merge keys (<<) are not supported here; write the keys themselves"
		text   = "a key must be text; put it in quotes"
		colon  = "a text without quotes cannot end with a colon: put it in quotes, or write a space after the colon"
	)
	for what, c := range map[string]struct {
		content, rest string
		want          []string
	}{
		"an alias and its anchor":     {"a: &x b\nc: [*x]\n", `{a:str"b" c:[*]}`, []string{"1:.a: " + anchor, "2:.c[0]: " + alias}},
		"an anchor on a mapping":      {"a: &x\n  b: c\n", `{a:{b:str"c"}}`, []string{"1:.a: " + anchor}},
		"an anchor on the root":       {"&x\na: b\n", `{a:str"b"}`, []string{"1:: " + anchor}},
		"what contains itself":        {"a: &x\n  b: *x\n", `{a:{b:*}}`, []string{"1:.a: " + anchor, "2:.a.b: " + alias}},
		"an anchor on a key":          {"&x a: b\nc: d\n", `{c:str"d"}`, []string{"1: key: " + anchor}},
		"an alias as a key":           {"a: &x b\n*x : d\n", `{a:str"b"}`, []string{"1:.a: " + anchor, "2: key: " + alias}},
		"a merge key":                 {"a:\n  <<: {b: c}\n  d: e\n", `{a:{d:str"e"}}`, []string{"2:.a key: " + merge}},
		"a merge of a list":           {"<<: [{b: c}, {d: e}]\n", `{}`, []string{"1: key: " + merge}},
		"a tag":                       {"a: !!str 1\nb: !own {c: d}\n", `{a:str"1" b:{c:str"d"}}`, []string{"1:.a: " + tag, "2:.b: " + tag}},
		"a tag in full":               {"a: !<tag:yaml.org,2002:str> 1\n", `{a:str"1"}`, []string{"1:.a: " + tag}},
		"a tag on a key":              {"!!str a: b\n", `{}`, []string{"1: key: " + tag}},
		"a tag that makes text":       {"a: ! 12\nb: [x, ! true]\n", `{a:int"12" b:[str"x" bool"true"]}`, []string{"1:.a: " + tag, "2:.b[1]: " + tag}},
		"the same in full":            {"a: !<!> 12\n", `{a:int"12"}`, []string{"1:.a: " + tag}},
		"the same over lines":         {"é: {'é': é, b: !\n  12}\n", `{é:{é:str"é" b:int"12"}}`, []string{"1:.é.b: " + tag}},
		"the same behind a mark":      {"\ufeffa: ! 12\n", `{a:int"12"}`, []string{"1:.a: " + tag}},
		"the same after CR and CRLF":  {"a: b\rc: d\r\ne: ! 1\r\n", `{a:str"b" c:str"d" e:int"1"}`, []string{"3:.e: " + tag}},
		"the same on a key":           {"! 1: a\nb: c\n", `{b:str"c"}`, []string{"1: key: " + tag}},
		"the same on nothing":         {"a: !\nb: c\n", `{a:null"" b:str"c"}`, []string{"1:.a: " + tag}},
		"the same on a mapping":       {"a: !\n  b: c\n", `{a:{b:str"c"}}`, []string{"1:.a: " + tag}},
		"the same on the root":        {"! {a: b}\n", `{a:str"b"}`, []string{"1:: " + tag}},
		"a key twice":                 {"a: b\nc: d\na: e\n\"a\": f\n", `{a:str"b" c:str"d"}`, []string{"3: key: duplicate key, first on line 1; keep one", "4: key: duplicate key, first on line 1; keep one"}},
		"a key twice, escaped":        {`{"a": 1, "\x61": 2}`, `{a:int"1"}`, []string{"1: key: duplicate key, first on line 1; keep one"}},
		"a key twice, further in":     {"a:\n- b: c\n  b: d\n", `{a:[{b:str"c"}]}`, []string{"3:.a[0] key: duplicate key, first on line 2; keep one"}},
		"the same key elsewhere":      {"a: {a: {a: b}}\nb: {a: c}\n", `{a:{a:{a:str"b"}} b:{a:str"c"}}`, nil},
		"keys that are no text":       {"1: a\ntrue: b\n~: c\n2026-01-02: d\n? [a]\n: e\n? {a: b}\n: f\n1.5: h\nok: i\n", `{ok:str"i"}`, slices.Repeat([]string{": " + text}, 7)},
		"keys that are text to some":  {"on: a\nNo: b\n1:30: c\n190:20:30.15: d\nOFF: e\n=: f\n'on': g\n\"1:30\": h\na:b: i\ny: j\n", `{on:str"g" 1:30:str"h" a:b:str"i" y:str"j"}`, slices.Repeat([]string{": " + text}, 6)},
		"a colon and no space":        {"a: {b:}\nc: [d, e:]\nf: [\"g:\"]\n", `{a:{} c:[str"d" str"e:"] f:[str"g:"]}`, []string{"1:.a key: " + colon, "2:.c[1]: " + colon}},
		"a fault in what is left out": {"1: &x a\n? &y [*x]\n: b\n", `{}`, []string{"1: key: " + text, "2: key: " + anchor}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			root, err := plainyaml.Parse([]byte(c.content))
			if err != nil {
				t.Fatal(err)
			}
			got := faults(root)
			same := slices.EqualFunc(got, c.want, func(got, want string) bool { return strings.HasSuffix(got, want) })
			if !same || tree(root) != c.rest {
				t.Errorf("%q has %q and leaves %s\nwant %q and %s", c.content, got, tree(root), c.want, c.rest)
			}
		})
	}
}

func TestNestingEndsAtTheLimit(t *testing.T) {
	t.Parallel()
	nested := func(depth int) string { return strings.Repeat("[", depth) + "x" + strings.Repeat("]", depth) }
	root, err := plainyaml.Parse([]byte(nested(plainyaml.MaxDepth)))
	if err != nil || faults(root) != nil {
		t.Errorf("at the limit: %v, %q", err, faults(root))
	}
	root, err = plainyaml.Parse([]byte(nested(5000)))
	if err != nil {
		t.Fatal(err)
	}
	if got := faults(root); len(got) != 1 || !strings.HasSuffix(got[0], "nested too deeply") {
		t.Errorf("%q", got)
	}
	if got, want := tree(root), strings.Repeat("[", plainyaml.MaxDepth+2)+strings.Repeat("]", plainyaml.MaxDepth+2); got != want {
		t.Errorf("left is %s", got)
	}
}
