package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/daemon/config"
)

// configurations are the configurations in a document: each block of YAML but the tests of
// a policy.
func configurations(text string) []string {
	var all []string
	for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(m[1], "- ") {
			all = append(all, m[1])
		}
	}
	return all
}

// TestEachConfigurationInADocumentLoads: where every variable, secret and program that it
// names exists, an example has no problem, and no warning except about servers that it
// does not repeat.
func TestEachConfigurationInADocumentLoads(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	o, found := complete(), 0
	o.ResolveCommand = func(command, _ string) (string, error) { return "/usr/bin/" + filepath.Base(command), nil }
	for _, page := range append(pages, "../../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range configurations(string(text)) {
			found++
			c, problems := config.Parse(page, "/etc/doorward", []byte(block), o)
			for _, p := range problems {
				if !strings.Contains(p.Problem, "is configured") {
					t.Errorf("%s: %s\n%s", page, p.Problem, block)
				}
			}
			if c == nil {
				t.Errorf("%s: not loaded:\n%s", page, block)
			}
		}
	}
	if found < 15 {
		t.Errorf("%d configurations, want at least 15: does the pattern of this test still match?", found)
	}
}
