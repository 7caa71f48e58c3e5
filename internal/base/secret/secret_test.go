package secret_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/secret"
)

const password = "hunter2-correct-horse"

func TestValueCannotBePrinted(t *testing.T) {
	t.Parallel()
	v := secret.New(password)
	type outer struct {
		Name   string
		Public secret.Value
		hidden secret.Value
		list   []secret.Value
		named  map[string]secret.Value
		inner  *secret.Value
	}
	whole := outer{"x", v, v, []secret.Value{v}, map[string]secret.Value{"a": v}, &v}
	template, err := secret.Parse(password + "${env:X}")
	if err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%o", "%e", "%U", "%c", "%b", "%10.3s", "%!"} {
		for _, x := range []any{v, &v, whole, &whole, []any{v}, template, &template, []secret.Template{template}, errors.Join(fmt.Errorf("%v", v))} {
			fmt.Fprintf(&printed, verb+"\n", x)
		}
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&printed, nil), slog.NewJSONHandler(&printed, nil)} {
		slog.New(h).Info("m", "value", v, "pointer", &v, "whole", whole, "template", template, slog.Group("g", "v", v))
	}
	for _, x := range []any{v, &v, whole, map[string]any{"v": v}, map[secret.Value]int{v: 1}} {
		b, err := json.Marshal(x)
		if err != nil {
			t.Errorf("json of %T: %v", x, err)
		}
		printed.Write(b)
	}
	if b, err := xml.Marshal(v); err != nil {
		t.Error(err)
	} else {
		printed.Write(b)
	}
	for _, form := range []string{password, fmt.Sprintf("%x", password), fmt.Sprintf("%X", password), password[:8], fmt.Sprintf("%v", []byte(password))} {
		if strings.Contains(printed.String(), form) {
			t.Errorf("the secret was printed as %q", form)
		}
	}
	if v.String() != "[secret]" || v.GoString() != "[secret]" || fmt.Sprint(secret.Value{}) != "[secret]" {
		t.Error("a Value does not print as [secret]")
	}
}

func TestValueKeepsItsText(t *testing.T) {
	t.Parallel()
	v := secret.New(password)
	if v.Reveal() != password || v.Empty() {
		t.Errorf("Reveal gives %d bytes, Empty %v", len(v.Reveal()), v.Empty())
	}
	if !v.Equal(secret.New(password)) || v.Equal(secret.New(password+"x")) || v.Equal(secret.Value{}) {
		t.Error("Equal does not compare the text")
	}
	if z := (secret.Value{}); z.Reveal() != "" || !z.Empty() || !z.Equal(secret.New("")) {
		t.Error("the zero Value is not the empty text")
	}
}

// sources answers from fixed tables and refuses to look anywhere else.
func sources(vars map[string]string) secret.Sources {
	return secret.Sources{
		Env: func(name string) (string, bool) { v, ok := vars[name]; return v, ok },
		File: func(path string) (secret.Value, error) {
			return secret.New("<" + path + ">"), nil
		},
		Keyring: func(service, name string) (secret.Value, error) {
			return secret.New("<" + service + "|" + name + ">"), nil
		},
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	vars := map[string]string{"A": "alpha", "B_2": "beta", "_": "under", "EMPTY": "", "DOLLAR": "${A}"}
	for in, want := range map[string]string{
		"":                              "",
		"plain":                         "plain",
		"${env:A}":                      "alpha",
		"${A}":                          "alpha",
		"Bearer ${env:A}":               "Bearer alpha",
		"${A}${B_2}-${_}":               "alphabeta-under",
		"${EMPTY}":                      "",
		"${env:EMPTY}.":                 ".",
		"${A:-other}":                   "alpha",
		"${EMPTY:-other}":               "other",
		"${NONE:-}":                     "",
		"${NONE:-a:b/c d}":              "a:b/c d",
		"${env:NONE:-other}":            "other",
		"${NONE:-${A":                   "!", // nested
		"${DOLLAR}":                     "${A}",
		"$A costs $5 $$ 100$":           "$A costs $5 $$ 100$",
		"$${A}":                         "${A}",
		"$$${A}":                        "$${A}",
		"x$${A}y${A}":                   "x${A}yalpha",
		"$${":                           "${",
		"{A}}":                          "{A}}",
		"${A}}":                         "alpha}",
		"${file:/run/secrets/key}":      "</run/secrets/key>",
		"${file:/a:-b}":                 "</a:-b>",
		"k=${keyring:github/me}":        "k=<github|me>",
		"${keyring:git:hub.com/me@x/y}": "<git:hub.com|me@x/y>",
	} {
		tpl, err := secret.Parse(in)
		if want == "!" {
			if err == nil {
				t.Errorf("%q was accepted", in)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		v, err := tpl.Resolve(sources(vars))
		if err != nil || v.Reveal() != want {
			t.Errorf("%q gives %q, %v; want %q", in, v.Reveal(), err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]error{
		password + "${":               secret.ErrUnclosed,
		password + "${A":              secret.ErrUnclosed,
		"${A:-${B}}" + password:       secret.ErrNested,
		"${}":                         secret.ErrName,
		"${env:}":                     secret.ErrName,
		"${:-x}":                      secret.ErrName,
		"${1A}":                       secret.ErrName,
		"${A B}":                      secret.ErrName,
		"${A-x}":                      secret.ErrName,
		"${ A}":                       secret.ErrName,
		"${ÄB}":                       secret.ErrName,
		"${A\x00}":                    secret.ErrName,
		"${env:A:x}":                  secret.ErrName,
		"${vault:a/b}":                secret.ErrKind,
		"${ENV:A}":                    secret.ErrKind,
		"${A:x}":                      secret.ErrKind,
		"${input:key}":                secret.ErrPrompt,
		"${file:key}":                 secret.ErrPath,
		"${file:}":                    secret.ErrPath,
		"${file:~/key}":               secret.ErrPath,
		"${keyring:}":                 secret.ErrEntry,
		"${keyring:service}":          secret.ErrEntry,
		"${keyring:/name}":            secret.ErrEntry,
		"${keyring:service/}":         secret.ErrEntry,
		"ok ${A} ${" + password + "}": secret.ErrName,
	} {
		_, err := secret.Parse(in)
		if !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", in, err, want)
		} else if strings.Contains(err.Error(), password) {
			t.Errorf("%q: the error repeats the text: %v", in, err)
		}
	}
}

func TestAllUnsetVariablesAreNamed(t *testing.T) {
	t.Parallel()
	tpl, err := secret.Parse("${SET}${FIRST}${env:SECOND}")
	if err != nil {
		t.Fatal(err)
	}
	v, err := tpl.Resolve(sources(map[string]string{"SET": password}))
	if !v.Empty() {
		t.Error("a part was resolved")
	}
	unset, ok := errors.AsType[*secret.UnsetError](err)
	if !ok || unset.Name != "FIRST" || !strings.Contains(err.Error(), "SECOND") || strings.Contains(err.Error(), password) {
		t.Errorf("got %v", err)
	}
	if _, err := tpl.Resolve(secret.Sources{}); err == nil || !strings.Contains(err.Error(), "SET") {
		t.Errorf("without an environment: %v", err)
	}
}

func TestRefs(t *testing.T) {
	t.Parallel()
	tpl, err := secret.Parse("a${A}b${file:/f}c${keyring:s/n}${B:-x}$${C}")
	if err != nil {
		t.Fatal(err)
	}
	want := []secret.Ref{{secret.Env, "A"}, {secret.File, "/f"}, {secret.Keyring, "s/n"}, {secret.Env, "B"}}
	if got := fmt.Sprint(tpl.Refs()); got != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// FuzzTemplate: parsing does not panic, a template does not print its text, and a text without references resolves
// to itself, with $${ as ${.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"", "${A}", "${env:A:-x}", "$${", "${file:/x}", "${keyring:a/b}", "${input:x}", "${A${B}}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tpl, err := secret.Parse(s)
		if err != nil {
			return
		}
		v, err := tpl.Resolve(sources(nil))
		switch {
		case err == nil && len(tpl.Refs()) == 0 && v.Reveal() != strings.ReplaceAll(s, "$${", "${"):
			t.Errorf("%q became %q", s, v.Reveal())
		case fmt.Sprintf("%v %#v", tpl, tpl) != "[secret] [secret]":
			t.Error("a template was printed")
		}
	})
}
