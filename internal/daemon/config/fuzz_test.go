package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
)

// FuzzParse: any content gives no panic, a Config exactly without a fatal problem, and a line and a text for every
// problem. No file is read without a reference in the content, and no secret is repeated.
func FuzzParse(f *testing.F) {
	paths, _ := filepath.Glob("testdata/problems/*.txtar")
	for _, path := range paths {
		ar, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(ar.Files[0].Data, strings.HasSuffix(ar.Files[0].Name, ".json"))
	}
	manual, err := os.ReadFile("testdata/manual.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(manual, false)
	f.Fuzz(func(t *testing.T, content []byte, isJSON bool) {
		o := options()
		o.Env = func(string) (string, bool) { return "x", true }
		o.File = func(path string) (secret.Value, error) {
			// A JSON or YAML escape may spell the path differently.
			if !strings.Contains(string(content), "file:") && !strings.ContainsAny(string(content), `\`) {
				t.Errorf("read %s", path)
			}
			return secret.New(password), nil
		}
		name := map[bool]string{true: "x.json", false: "x.yaml"}[isJSON]
		c, ps := config.Parse(name, "/etc/doorward", content, o)
		if (c == nil) != config.Fatal(ps) {
			t.Fatalf("a Config %v with %v", c != nil, ps)
		}
		for _, p := range ps {
			if p.Line < 1 || p.Problem == "" || p.File != name || strings.ContainsFunc(p.Key+p.Problem, unicode.IsControl) {
				t.Errorf("problem %#v", p)
			}
		}
		if c == nil {
			return
		}
		for name, s := range c.Servers {
			isHTTP := s.Kind == "http" || s.Kind == "sse"
			if s.Usable() && (s.Kind == "stdio") != (s.Command != "") || s.Usable() && isHTTP == s.URL.Empty() {
				t.Errorf("server %q is usable: %+v", name, *s)
			}
		}
		if out := fmt.Sprintf("%+v %+v %v", *c, c.Servers, ps); strings.Contains(out, password) && !strings.Contains(string(content), password) {
			t.Error("a secret was printed")
		}
	})
}
