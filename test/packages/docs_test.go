//go:build packages

package packages

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// blocks are the shell commands of a document, block by block.
func blocks(t *testing.T, root, name string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllSubmatch(b, -1) {
		all = append(all, string(m[1]))
	}
	if len(all) == 0 {
		t.Fatalf("%s has no commands", name)
	}
	return all
}
