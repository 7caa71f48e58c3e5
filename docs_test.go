package doorward_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// evidence are the names of all tests in the repository: Go test functions,
// and scripts that drive the real binary.
func evidence(t *testing.T) map[string]bool {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	found := make(map[string]bool)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git"):
			return fs.SkipDir
		case strings.HasSuffix(path, ".txtar"):
			found[d.Name()] = true
		case strings.HasSuffix(path, "_test.go"):
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range function.FindAllSubmatch(b, -1) {
				found[string(m[1])] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestEveryPromiseNamesItsTest: in each listed document, every row of a table whose last
// column is "shown by" names a test, and each named test exists.
func TestEveryPromiseNamesItsTest(t *testing.T) {
	t.Parallel()
	known := evidence(t)
	reference := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)\\w+|\\w+\\.txtar)`")
	for _, path := range []string{"docs/security-model.md", "docs/security-defaults.md", "docs/sandbox.md", "docs/messaging.md", "docs/spawn.md",
		"docs/instructions.md", "docs/trust.md", "docs/console.md", "docs/retention.md"} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		rows := 0
		for n, cell := range promises(string(b)) {
			rows++
			refs := reference.FindAllStringSubmatch(cell, -1)
			if len(refs) == 0 {
				t.Errorf("%s:%d: a promise without a test: %s", path, n, cell)
			}
			for _, ref := range refs {
				if !known[ref[1]] {
					t.Errorf("%s:%d: there is no test %s", path, n, ref[1])
				}
			}
		}
		if rows == 0 {
			t.Errorf("%s: no table of promises", path)
		}
	}
}

// promises returns the line number and the last cell of each row in the tables whose last
// column is "shown by".
func promises(text string) map[int]string {
	out := make(map[int]string)
	in := false
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "|"), "|")
		last := strings.TrimSpace(cells[len(cells)-1])
		switch {
		case !strings.HasPrefix(line, "|"):
			in = false
		case !in:
			in = last == "shown by"
		case strings.Trim(line, "|-: ") == "":
		default:
			out[n+1] = last
		}
	}
	return out
}

// TestCommentsCiteOnlyAvailableDocuments: a page that a comment names exists in docs, and
// no comment cites a numbered requirement, threat or finding, because no document of this
// repository has such numbers.
func TestCommentsCiteOnlyAvailableDocuments(t *testing.T) {
	t.Parallel()
	page := regexp.MustCompile(`\b[a-zA-Z-]+\.md\b`)
	row := regexp.MustCompile(`\([A-Z]{1,2}[0-9]{1,2}[),;]|\b(?:requirements?|threats|findings|contract|design) [A-Z]{1,2}[0-9]{1,3}\b`)
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, p.Dir+"/"+name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range file.Comments {
				for _, cited := range page.FindAllString(c.Text(), -1) {
					if _, err := os.Stat("docs/" + cited); err != nil {
						t.Errorf("%s cites %s, which is not in docs", fset.Position(c.Pos()), cited)
					}
				}
				if cited := row.FindString(c.Text()); cited != "" {
					t.Errorf("%s cites %q: state the fact, or a public source", fset.Position(c.Pos()), cited)
				}
			}
		}
	}
}

// TestTheArchitecturePageNamesFilesThatExist: each path of a Go file in
// docs/architecture.md exists below internal.
func TestTheArchitecturePageNamesFilesThatExist(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z]+(?:/[a-z]+)*/[a-z]+\\.go)`").FindAllSubmatch(b, -1)
	if len(named) < 10 {
		t.Errorf("docs/architecture.md names %d Go files, want at least 10: does the pattern of this test still match?", len(named))
	}
	for _, m := range named {
		found := false
		for _, root := range []string{"internal/", "internal/downstream/", "internal/upstream/", "internal/trust/", "internal/messaging/", "internal/instructions/"} {
			_, err := os.Stat(root + string(m[1]))
			found = found || err == nil
		}
		if !found {
			t.Errorf("docs/architecture.md names %s, which does not exist", m[1])
		}
	}
}
