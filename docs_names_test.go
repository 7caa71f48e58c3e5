package doorward_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documents returns the text of each document of the repository, by its path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md", "examples/*/*.md", "test/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range found {
			b, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			all[page] = string(b)
		}
	}
	if len(all) < 40 {
		t.Fatalf("%d documents", len(all))
	}
	return all
}

// TestEachTestThatADocumentNamesExists: in prose as in tables.
func TestEachTestThatADocumentNamesExists(t *testing.T) {
	t.Parallel()
	known, named := evidence(t), regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*|(?:[a-z]+/)*[a-z_0-9]+\\.txtar)[`/]")
	for page, text := range documents(t) {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			if !known[path.Base(m[1])] {
				t.Errorf("%s: there is no test %s", page, m[1])
			}
		}
	}
}

// TestEachReferenceLeadsSomewhere: the file of each relative link exists, and its heading.
func TestEachReferenceLeadsSomewhere(t *testing.T) {
	t.Parallel()
	all := documents(t)
	code, link := regexp.MustCompile("(?ms)^```.*?^```$"), regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for page, text := range all {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			file, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, ":") { // an address
				continue
			}
			target := page
			if file != "" {
				target = path.Join(path.Dir(page), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s leads nowhere: %v", page, m[1], err)
			} else if heading != "" && !headings(code.ReplaceAllString(all[target], ""))[heading] {
				t.Errorf("%s: %s has no heading #%s", page, target, heading)
			}
		}
	}
}

// headings returns the headings of a text, in the form in which a link names them.
func headings(text string) map[string]bool {
	all, drop := make(map[string]bool), regexp.MustCompile(`[^\pL\pN_ -]`)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		all[strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return all
}
