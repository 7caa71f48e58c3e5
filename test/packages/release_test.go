//go:build packages

package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func moduleRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// release makes the release files of a version from a source tree.
func release(t *testing.T, tree, dist, version, targets string, env ...string) {
	t.Helper()
	c := exec.Command("go", "run", ".", "-root", tree, "-dist", dist, "-version", version, "-targets", targets)
	c.Dir, c.Env = filepath.Join(tree, "tools", "packages"), append(os.Environ(), env...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// Builds with different paths, build caches, time zones and umasks give the same bytes.
func TestTwoBuildsGiveTheSameBytes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("compiles everything again with an empty cache, which needs 8 minutes of one processor: run by make packages-test")
	}
	const targets = "linux/amd64,windows/amd64" // a client, the system packages and the image
	root, one, two := moduleRoot(t), t.TempDir(), t.TempDir()
	copied := filepath.Join(t.TempDir(), "another", "tree")
	script := `umask 077 && mkdir -p "$1" && cd "$0" && git ls-files -z | tar --null -T - -cf - | tar -C "$1" -xf -`
	if out, err := exec.Command("sh", "-c", script, root, copied).CombinedOutput(); err != nil {
		t.Fatalf("copying the tree: %v: %s", err, out)
	}
	release(t, root, one, "1.2.3", targets, "SOURCE_DATE_EPOCH=1700000000")
	release(t, copied, two, "1.2.3", targets, "SOURCE_DATE_EPOCH=1700000000", "GOCACHE="+t.TempDir(), "TZ=Asia/Tokyo", "HOME="+t.TempDir(), "GOPATH="+goPath(t))
	sums := func(dir string) string {
		b, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if a, b := sums(one), sums(two); a != b || strings.Count(a, "\n") != 7 {
		t.Errorf("two builds differ, or are not seven files:\n%s\n%s", a, b)
	}
}

func goPath(t *testing.T) string {
	t.Helper()
	b, err := exec.Command("go", "env", "GOPATH").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
