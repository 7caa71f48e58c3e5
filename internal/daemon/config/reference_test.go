package config

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

// The part of the documentation between these lines is made from the structs.
const (
	referenceBegin = "<!-- reference: begin; made by go test ./internal/daemon/config -run Reference -update -->\n"
	referenceEnd   = "<!-- reference: end -->\n"
)

// TestReference: the reference in docs/configuration.md is what the structs give.
func TestReference(t *testing.T) {
	t.Parallel()
	const page = "../../../docs/configuration.md"
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), referenceBegin)
	_, after, ok2 := strings.Cut(rest, referenceEnd)
	if !ok || !ok2 {
		t.Fatalf("%s does not have the two lines around the reference", page)
	}
	var w strings.Builder
	writeReference(&w, "", reflect.TypeFor[Config]())
	want := before + referenceBegin + w.String() + referenceEnd + after
	if string(b) == want {
		return
	}
	if flag.Lookup("update").Value.String() != "true" {
		t.Fatalf("%s is not what the structs say; run this test with -update", page)
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// writeReference writes a table for a section and then for the sections in it.
func writeReference(w *strings.Builder, key string, t reflect.Type) {
	title := "`" + key + "`"
	if key == "" {
		title = "Top level"
	}
	fmt.Fprintf(w, "\n### %s\n\n| key | values | default | meaning |\n|---|---|---|---|\n", title)
	for _, f := range fieldsOf(t) {
		fmt.Fprintf(w, "| `%s` | %s | %s | %s |\n", f.key, values(f), fallback(f), strings.ReplaceAll(f.doc, "|", "\\|"))
	}
	for _, f := range fieldsOf(t) {
		if inner, suffix := inside(f.typ); inner != nil {
			writeReference(w, strings.TrimPrefix(key+"."+f.key+suffix, "."), inner)
		}
	}
	if key == "" {
		w.WriteString("\n")
	}
}

// inside is the section that a field leads to, and the suffix of its key.
func inside(t reflect.Type) (reflect.Type, string) {
	suffix := ""
	for {
		switch {
		case isStruct(t):
			return t, suffix
		case t.Kind() == reflect.Pointer:
			t = t.Elem()
		case t.Kind() == reflect.Slice:
			t, suffix = t.Elem(), suffix+"[]"
		case t.Kind() == reflect.Map:
			t, suffix = t.Elem(), suffix+".NAME"
		default:
			return nil, ""
		}
	}
}

// values says what a key may be.
func values(f field) string {
	item := f.typ
	list := item.Kind() == reflect.Slice
	if list {
		item = item.Elem()
	}
	what := ""
	switch {
	case f.enum != nil:
		what = "`" + strings.Join(f.enum, "`, `") + "`"
	case item == durationType:
		what = "a time such as `120s`, at most " + f.max
	case item == sizeType:
		what = "a size such as `512MiB`, at most " + f.max
	case item == networkType:
		what = "`inherit`, `none`, or a list of ports"
	case item.Kind() == reflect.Bool:
		what = "`true`, `false`"
	case f.min != "":
		what = f.min + " to " + f.max
	case item == valueType && f.refs == "any", item.Kind() == reflect.Map && f.refs == "any":
		what = "text, references"
	case f.path:
		what = "a path, variables"
	case f.refs == "env":
		what = "text, variables"
	case item.Kind() == reflect.String:
		what = "text"
	default:
		what = "a section"
	}
	if item.Kind() == reflect.Map {
		what = map[bool]string{true: "names with " + what, false: "names with sections"}[item.Elem() == valueType]
		if item.Elem().Kind() == reflect.Slice {
			what = "names with lists of text"
		}
	}
	if list {
		return "a list: " + what
	}
	return what
}

// fallback says what holds when the key is missing.
func fallback(f field) string {
	switch {
	case f.required:
		return "required"
	case f.fallback == "":
		return ""
	case f.typ.Kind() == reflect.Slice:
		return "`[\"" + strings.ReplaceAll(f.fallback, ",", `", "`) + "\"]`"
	}
	return "`" + f.fallback + "`"
}
