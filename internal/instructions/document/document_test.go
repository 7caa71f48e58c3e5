package document

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parse reads a valid document.
func parse(t testing.TB, file, content string) *Document {
	t.Helper()
	d, err := Parse(file, []byte(content))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return d
}

// doc makes a document with further header lines. Its class is template unless they
// name another one.
func doc(t testing.TB, name, header, body string) *Document {
	t.Helper()
	if !strings.Contains(header, "class:") {
		header += "\nclass: template"
	}
	return parse(t, name+".md", fmt.Sprintf("---\nname: %q\n%s\n---\n%s\n", name, header, body))
}

const full = `---
# a comment
name: review
class: template
tier: structural
description: "How a review is written"
mcp_prompt: true
audience:
  principals: ["uid:*", "uid:1000", "uid:*"]
  projects: [demo-*]
variables:
  project: {type: string, maxLength: 80}
  count:
    type: integer
    minimum: 1
    default: 3
---

# Review of {{project}}

Write {{count}} lines. \{{this}} stays.
{{> rules}}

`

func TestADocumentWithEverything(t *testing.T) {
	t.Parallel()
	d := parse(t, "review.md", full)
	sum := sha256.Sum256([]byte(full))
	want := Document{
		Name: "review", Class: ClassTemplate, Tier: Structural, Description: "How a review is written", Prompt: true, File: "review.md",
		Version:  hex.EncodeToString(sum[:]),
		Body:     "# Review of {{project}}\n\nWrite {{count}} lines. \\{{this}} stays.\n{{> rules}}",
		Audience: Audience{Principals: []string{"uid:*", "uid:1000"}, Projects: []string{"demo-*"}},
		Variables: map[string]json.RawMessage{
			"project": json.RawMessage(`{"type":"string","maxLength":80}`),
			"count":   json.RawMessage(`{"type":"integer","minimum":1,"default":3}`),
		},
	}
	got := *d
	got.parts, got.includes, got.compiled, got.line = nil, nil, nil, 0
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Document{})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"rules"}, d.Includes()); diff != "" {
		t.Error(diff)
	}
	if want := `{"type":"object","properties":{"count":{"type":"integer","minimum":1,"default":3},"project":{"type":"string","maxLength":80}},"required":["project"],"additionalProperties":false}`; string(d.Schema()) != want {
		t.Errorf("%s", d.Schema())
	}
	if want := `{"type":"object","properties":{},"required":[],"additionalProperties":false}`; string(doc(t, "x", "", "text").Schema()) != want {
		t.Errorf("%s", doc(t, "x", "", "text").Schema())
	}
}

func TestTheLeastDocumentIsBehaviouralAndForEverybody(t *testing.T) {
	t.Parallel()
	d := parse(t, "a", "---\nname: a\nclass: voice\n---\nx")
	if d.Tier != Behavioural || d.Variant() != "" || d.Variables != nil || d.Prompt || d.Body != "x" || d.Includes() != nil {
		t.Errorf("%+v", d)
	}
}

func TestByteOrderMarkAndLineEndsChangeNothing(t *testing.T) {
	t.Parallel()
	plain := parse(t, "a", full)
	for what, content := range map[string]string{
		"CRLF":          strings.ReplaceAll(full, "\n", "\r\n"),
		"a mark":        "\ufeff" + full,
		"mark and CRLF": "\ufeff" + strings.ReplaceAll(full, "\n", "\r\n"),
	} {
		if d := parse(t, "a", content); d.Version != plain.Version || d.Body != plain.Body {
			t.Errorf("%s: another version or body", what)
		}
	}
	if d := parse(t, "a", full+"\n"); d.Version == plain.Version || d.Body != plain.Body {
		t.Error("a line end more is another version with the same body")
	}
}

func TestAVariantIsTheAudienceInAnyOrder(t *testing.T) {
	t.Parallel()
	variant := func(audience string) string { return doc(t, "a", "audience: "+audience, "x").Variant() }
	if a, b := variant(`{principals: [a, "b*"], roles: [r]}`), variant(`{roles: [r], principals: ["b*", a, a]}`); a != b || len(a) != 8 {
		t.Errorf("%q and %q", a, b)
	}
	if variant(`{}`) != "" || variant(`{roles: []}`) != "" {
		t.Error("an empty audience has a variant of its own")
	}
	seen := map[string]string{}
	for _, a := range []string{`{principals: [a]}`, `{projects: [a]}`, `{roles: [a]}`, `{lineage: [a]}`, `{environments: [a]}`, `{principals: [a, b]}`, `{principals: ["a,b"]}`} {
		v := variant(a)
		if seen[v] != "" {
			t.Errorf("%s and %s are one variant", a, seen[v])
		}
		seen[v] = a
	}
}

// Each case has one problem: on the line that ends in ! (which is removed), with the
// given words.
func TestEachProblemIsReportedWithItsLine(t *testing.T) {
	t.Parallel()
	head := "---\nname: a\nclass: template\n"
	long := strings.Repeat("x", MaxBytes)
	for what, c := range map[string]struct{ content, words string }{
		"nothing":                      {"!", "no header"},
		"no header":                    {"name: a!\n", "no header"},
		"a header further down":        {"!\n---\nname: a\n---\nx\n", "no header"},
		"a line that is longer":        {"----!\nname: a\nclass: voice\n----\nx", "no header"},
		"spaces behind the hyphens":    {"--- !\nname: a\nclass: voice\n---\nx", "no header"},
		"no end":                       {"---!\nname: a\nclass: voice\nx\n", "does not end"},
		"an indented end":              {"---!\nname: a\nclass: voice\n ---\nx\n", "does not end"},
		"an empty header":              {"---!\n---\nx", "header is empty"},
		"an empty header and no end":   {"---!\n---", "header is empty"},
		"a header of comments":         {"---\n# name: a!\n---\nx", "must be a mapping"},
		"a header that is a list":      {"---\n- name!\n---\nx", "must be a mapping"},
		"no name":                      {"---!\nclass: voice\n---\nx", "key name is missing"},
		"no class":                     {"---!\nname: a\n---\nx", "key class is missing"},
		"no text":                      {head + "---!\n", "no text"},
		"no text but blank lines":      {head + "---!\n\n \n", "no text"},
		"not UTF-8":                    {head + "---\nx\n\xff!", "not UTF-8"},
		"NUL":                          {head + "---\nx\n\x00!", "not UTF-8 text without NUL"},
		"too large":                    {"---!\n" + long, "larger than 262144"},
		"not YAML":                     {head + "audience: {a!\n---\nx", "not valid YAML"},
		"a tab as indentation":         {head + "audience:\n\troles: []!\n---\nx", "not valid YAML"},
		"two YAML documents":           {head + "...\n--- b!\n---\nx", "second YAML document"},
		"unknown key":                  {head + "auidence: {}!\n---\nx", `unknown key "auidence"`},
		"duplicate key":                {head + "name: b!\n---\nx", `duplicate key "name", first on line 2`},
		"duplicate key further in":     {head + "audience:\n  roles: [a]\n  roles: [b]!\n---\nx", "duplicate key"},
		"anchor":                       {head + "tier: &t structural!\n---\nx", "anchors"},
		"anchor on a key":              {head + "&t tier: structural!\n---\nx", "anchors"},
		"alias":                        {head + "tier: structural\naudience: {roles: [*t]}!\n---\nx", "unknown anchor"},
		"a tag on a key":               {head + "!!str tier: structural!\n---\nx", "tags"},
		"a tag without a name":         {head + "variables:\n  a: {default: ! 12}!\n---\nx", "tags"},
		"a comment that some end":      {head + "# for the team\u2028tier: structural!\n---\nx", "invisible character here, U+2028"},
		"a directive":                  {"---\n%YAML 1.1!\nname: a\nclass: template\n---\nx", "directives"},
		"merge key":                    {head + "audience:\n  <<: {roles: [a]}!\n---\nx", "merge keys"},
		"tag":                          {head + "description: !!str x!\n---\nx", "tags"},
		"a key that is no text":        {head + "1: x!\n---\nx", "a key must be text"},
		"a key that is a list":         {head + "[a]: x!\n---\nx", "a key must be text"},
		"a name that is a number":      {"---\nname: 1!\nclass: voice\n---\nx", "must be text"},
		"a name in capitals":           {"---\nname: A!\nclass: voice\n---\nx", "a name is 1 to 63"},
		"a name with a slash":          {"---\nname: ../a!\nclass: voice\n---\nx", "a name is 1 to 63"},
		"a name that is too long":      {"---\nname: " + strings.Repeat("a", 64) + "!\nclass: voice\n---\nx", "a name is 1 to 63"},
		"the name session":             {"---\nname: session!\nclass: voice\n---\nx", "name of the composed text"},
		"unknown class":                {"---\nname: a\nclass: skill!\n---\nx", `"skill" is not one of instructions, voice, template`},
		"unknown tier":                 {head + "tier: public!\n---\nx", "not one of behavioural, structural"},
		"tier that is a list":          {head + "tier: [structural]!\n---\nx", "must be text"},
		"description of two lines":     {head + "description: \"a\\nb\"!\n---\nx", "one line of at most 1024"},
		"description that is too long": {head + "description: " + long[:1025] + "!\n---\nx", "one line of at most 1024"},
		"mcp_prompt in quotes":         {head + "mcp_prompt: \"true\"!\n---\nx", "true or false"},
		"mcp_prompt as a word":         {head + "mcp_prompt: yes!\n---\nx", "true or false"},
		"a prompt that is a voice":     {"---\nname: a!\nclass: voice\nmcp_prompt: true\n---\nx", "only a document of class template is an MCP prompt"},
		"variables of instructions":    {"---\nname: a!\nclass: instructions\nvariables: {b: {type: string}}\n---\nx", "only a document of class template has variables"},
		"a voice of another class":     {"---\nname: voice!\nclass: template\n---\nx", "named voice must be of class voice"},
		"a preamble with variables":    {"---\nname: preamble!\nclass: template\nvariables: {b: {type: string}}\n---\nx", "named preamble must be of class template, without"},
		"a preamble with an include":   {"---\nname: preamble!\nclass: template\n---\n{{> b}}", "named preamble"},
		"a preamble of another class":  {"---\nname: preamble!\nclass: voice\n---\nx", "named preamble"},
		"audience that is text":        {head + "audience: everybody!\n---\nx", "audience must be a mapping"},
		"unknown audience":             {head + "audience: {principal: [a]}!\n---\nx", `unknown key "principal"`},
		"audience without a list":      {head + "audience: {roles: a}!\n---\nx", "must be a list"},
		"audience of numbers":          {head + "audience:\n  principals:\n  - 1000!\n---\nx", "must be text"},
		"an empty pattern":             {head + "audience: {roles: [\"\"]}!\n---\nx", "1 to 256 bytes"},
		"a long pattern":               {head + "audience: {roles: [" + long[:257] + "]}!\n---\nx", "1 to 256 bytes"},
		"many patterns":                {head + "audience: {roles: [" + strings.Repeat("a, ", 65) + "]}!\n---\nx", "more than 64 patterns"},
		"variables that are a list":    {head + "variables: [a]!\n---\nx", "variables must be a mapping"},
		"a variable's name":            {head + "variables: {\"a b\": {type: string}}!\n---\nx", "name of a variable"},
		"a variable without a schema":  {head + "variables:\n  a:!\n---\nx", "must be a schema"},
		"a schema that is text":        {head + "variables:\n  a: string!\n---\nx", "must be a schema"},
		"a keyword that is misspelt":   {head + "variables:\n  a:\n    maxlength: 3!\n---\nx", `"maxlength" is not a keyword`},
		"a reference":                  {head + "variables:\n  a:\n    $ref: http://example.com/schema!\n---\nx", `"$ref" is not a keyword`},
		"a reference further in":       {head + "variables:\n  a:\n    anyOf:\n    - type: string\n    - {items: {$ref: \"#\"}}!\n---\nx", `"$ref" is not a keyword`},
		"an id":                        {head + "variables: {a: {$id: x}}!\n---\nx", `"$id" is not a keyword`},
		"definitions":                  {head + "variables: {a: {$defs: {b: {}}}}!\n---\nx", `"$defs" is not a keyword`},
		"a format, which is not checked": {head + "variables: {a: {type: string, format: date}}!\n---\nx",
			`"format" is not a keyword`},
		"a type that is none":           {head + "variables:\n  a:\n    type: text!\n---\nx", `"text" is not a type`},
		"a type in a list":              {head + "variables: {a: {type: [string, int]}}!\n---\nx", `"int" is not a type`},
		"a type that is null":           {head + "variables: {a: {type: null}}!\n---\nx", "does not compile"},
		"a pattern that is none":        {head + "variables:\n  a: {pattern: \"(\"}!\n---\nx", "does not compile"},
		"a pattern with a look behind":  {head + "variables:\n  a: {pattern: \"(?<=x)\"}!\n---\nx", "does not compile"},
		"a length that is text":         {head + "variables:\n  a: {maxLength: \"3\"}!\n---\nx", "value of the wrong type"},
		"a default of another type":     {head + "variables:\n  a: {type: integer, default: \"3\"}!\n---\nx", "default of a does not fit"},
		"a default that is too large":   {head + "variables:\n  a: {maximum: 2, default: 3}!\n---\nx", "default of a does not fit"},
		"a number with underscores":     {head + "variables:\n  a: {default: 1_000}!\n---\nx", "different parsers read"},
		"an octal number":               {head + "variables:\n  a: {default: 0o17}!\n---\nx", "different parsers read"},
		"infinity":                      {head + "variables:\n  a: {default: .inf}!\n---\nx", "different parsers read"},
		"a date":                        {head + "variables:\n  a: {default: 2026-01-02}!\n---\nx", "different parsers read"},
		"deep nesting":                  {head + "variables: {a: " + strings.Repeat("{not: ", 30) + "{}" + strings.Repeat("}", 30) + "}!\n---\nx", "nested too deeply"},
		"a placeholder without name":    {head + "---\nx\n{{}}!\n", `write \{{ for`},
		"a placeholder with spaces":     {head + "variables: {a: {}}\n---\n\nx\n{{ a }}!\n", `write \{{ for`},
		"a placeholder over lines":      {head + "variables: {a: {}}\n---\n{{!\na}}\n", `write \{{ for`},
		"three braces":                  {head + "variables: {a: {}}\n---\n{{{a}}}!\n", `write \{{ for`},
		"a function":                    {head + "variables: {a: {}}\n---\n{{upper a}}!\n", `write \{{ for`},
		"a loop":                        {head + "variables: {a: {}}\n---\n{{#a}}!\n", `write \{{ for`},
		"braces in a code block":        {head + "---\n```\n${{ secrets.X }}!\n```\n", `write \{{ for`},
		"an open brace at the end":      {head + "---\nx\nif {!\n\n", "must not end with"},
		"an escape at the end":          {head + "---\nx\n\\!\n", "must not end with"},
		"an unknown variable":           {head + "variables: {a: {}}\n---\n{{a}}\n\n{{b}}!\n", `no variable "b"`},
		"a variable of a voice":         {"---\nname: a\nclass: voice\n---\n{{b}}!\n", `no variable "b"`},
		"an include of a file":          {head + "---\n{{> b/c}}!\n", `write \{{ for`},
		"an include in capitals":        {head + "---\n{{> B}}!\n", "not the name of a document"},
		"an include without a space":    {head + "---\n{{>b}}!\n", `write \{{ for`},
		"a control character":           {head + "---\nx\ny\x07!\n", "invisible character here, U+0007"},
		"a terminal sequence":           {head + "---\n\x1b[31mx!\n", "invisible character here, U+001B"},
		"a return alone":                {head + "---\nx\ny\rz!\n", "invisible character here, U+000D"},
		"a direction mark":              {head + "---\nx\nadmin\u202e!\n", "invisible character here, U+202E"},
		"zero width":                    {head + "---\na\u200bb!\n", "invisible character here, U+200B"},
		"a joiner that shapes nothing":  {head + "---\na\u200cb!\n", "invisible character here, U+200C"},
		"a filler":                      {head + "---\na\u3164b!\n", "invisible character here, U+3164"},
		"a selector after a letter":     {head + "---\na\ufe01b!\n", "invisible character here, U+FE01"},
		"tags":                          {head + "---\na\U000E0041!\n", "invisible character here, U+E0041"},
		"a byte order mark further in":  {head + "---\na\ufeff!\n", "invisible character here, U+FEFF"},
		"a hidden character in a key":   {head + "audience: {\"ro\\u202Eles\": [a]}!\n---\nx", "invisible character here, U+202E"},
		"a hidden character, escaped":   {head + "description: \"a\\u200bb\"!\n---\nx", "invisible character here, U+200B"},
		"a hidden character, commented": {head + "# a\u202e!\n---\nx", "invisible character here, U+202E"},
		"the marks of the fence":        {head + "---\na\n⟦b⟧!\n", "reserved for values from callers"},
		"marks that look the same":      {head + "---\na\n〛!\n", "reserved for values from callers"},
		"a mark in a default":           {head + "variables: {a: {default: \"x⟧\"}}!\n---\nx", "reserved for values from callers"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			before, after, ok := strings.Cut(c.content, "!\n")
			if !ok {
				before, ok = strings.CutSuffix(c.content, "!")
			} else {
				after = "\n" + after
			}
			if !ok {
				t.Fatal("the case has no mark")
			}
			d, err := Parse("dir/a.md", []byte(before+after))
			var ps Problems
			if d != nil || !errors.As(err, &ps) {
				t.Fatalf("%+v, %v", d, err)
			}
			line := 1 + strings.Count(before, "\n")
			if len(ps) != 1 || ps[0].Line != line || !strings.Contains(ps[0].Text, c.words) || ps[0].File != "dir/a.md" || ps[0].Warning {
				t.Errorf("want line %d with %q, got:\n%v", line, c.words, err)
			}
		})
	}
}

func TestAllProblemsAreToldInTheOrderOfLines(t *testing.T) {
	t.Parallel()
	_, err := Parse("a.md", []byte("---\nnmae: a\nclass: x\naudience: {roles: b}\n---\n{{x}}\n{{y}}\n"))
	want := `a.md:1: the key name is missing
a.md:2: unknown key "nmae"; the keys are name, class, tier, audience, variables, description and mcp_prompt
a.md:3: "x" is not one of instructions, voice, template
a.md:4: this must be a list, such as ["uid:*"]
a.md:6: there is no variable "x" in the header
a.md:7: there is no variable "y" in the header`
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	_, err = Parse("a.md", []byte("---\nname: a\nclass: voice\n---\n"+strings.Repeat("{{x}} ", 40000)))
	var ps Problems
	if !errors.As(err, &ps) || len(ps) != maxProblems {
		t.Errorf("%d problems of 40,000", len(ps))
	}
}

// Characters that a terminal would act on are not repeated unescaped.
func TestProblemsAreFitForATerminal(t *testing.T) {
	t.Parallel()
	_, err := Parse("a.md", []byte("---\nname: a\nclass: voice\n\"a\\x20\\u00e9\\ttier\": x\n---\nx"))
	if err == nil || !strings.Contains(err.Error(), `unknown key`) || strings.Contains(err.Error(), "\t") {
		t.Errorf("%v", err)
	}
}

func TestUnusualBodiesAreParsedAsTheyAre(t *testing.T) {
	t.Parallel()
	for what, body := range map[string]string{
		"a line of 200 KiB":         strings.Repeat("word ", 40_000) + "end",
		"many escapes":              strings.Repeat(`\{{`, 80_000) + "end",
		"many placeholders":         strings.Repeat("{{a}}", 50_000),
		"hyphens":                   "a\n---\nb\n...\nc",
		"closing braces":            "}} { {a} }}",
		"joiners that shape":        "👩\u200d💻 ❤\ufe0f کتاب\u200cها",
		"a carriage return in CRLF": "a\r\nb",
		"other scripts":             "漢字 עברית العربية",
	} {
		d, err := Parse("a.md", []byte("---\nname: a\nclass: template\nvariables: {a: {default: x}}\n---\n"+body+"\n"))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if want := strings.ReplaceAll(body, "\r\n", "\n"); d.Body != want {
			t.Errorf("%s: the body is %.80q", what, d.Body)
		}
	}
	if d := parse(t, "a.md", "---\nname: a\nclass: voice\n---\n\n\n    code\n\t\n  \n"); d.Body != "    code" {
		t.Errorf("the body is %q", d.Body)
	}
	// The text may lack a line end.
	if d := parse(t, "a.md", "---\nname: a\nclass: voice\n---\nx"); d.Body != "x" {
		t.Errorf("the body is %q", d.Body)
	}
}
