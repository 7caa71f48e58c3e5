package client

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var label = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

func TestANamespaceIsTheFoldedNameOfTheDirectoryAndItsDigest(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"demo":                         "demo",
		"My Project":                   "my-project",
		"web.app_2":                    "web.app_2",
		"..hidden":                     "hidden",
		"--x--":                        "x",
		"a & b":                        "a-b",
		"ünïcode":                      "n-code",
		"プロジェクト":                       "project",
		strings.Repeat("long", 20):     strings.Repeat("long", 13) + "lo",
		strings.Repeat("a", 53) + "._": strings.Repeat("a", 53),
		"line\nbreak":                  "line-break",
		"\u202eevil":                   "evil",
	} {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		got, err := Namespace(dir)
		sum := sha256.Sum256([]byte(dir))
		if err != nil || got != want+"-"+hex.EncodeToString(sum[:4]) || !label.MatchString(got) || !ValidNamespace(got) {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
	if _, err := Namespace(filepath.Join(root, "nowhere")); err == nil {
		t.Error("a directory that is not there has a label")
	}
	if got, err := Namespace("/"); err != nil || !strings.HasPrefix(got, "project-") {
		t.Errorf("the root: %q, %v", got, err)
	}
}

// A symbolic link to a project has the namespace of the project. Two directories of one
// name have different namespaces.
func TestLinksToAProjectShareItsNamespace(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, dir := range []string{"one/demo", "two/demo"} {
		os.MkdirAll(filepath.Join(root, dir), 0o700)
	}
	os.Symlink(filepath.Join(root, "one/demo"), filepath.Join(root, "link"))
	of := func(dir string) string {
		n, err := Namespace(filepath.Join(root, dir))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if of("link") != of("one/demo") {
		t.Errorf("a link has %s, its project %s", of("link"), of("one/demo"))
	}
	if of("one/demo") == of("two/demo") {
		t.Error("two projects of one name share a namespace")
	}
}

func TestOnlyALabelIsANamespace(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "a", "0", "-a", ".a", "_a", "a.b_c-d", "A", "a b", "a/b", "é", "a\n", strings.Repeat("a", 63), strings.Repeat("a", 64)} {
		if ValidNamespace(s) != label.MatchString(s) {
			t.Errorf("%q: %v", s, ValidNamespace(s))
		}
	}
}
