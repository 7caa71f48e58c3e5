//go:build packages

package packages

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The bill of materials names exactly the modules that the go command finds in the
// released program, each with its version and sum, and has the program's digest.
func TestTheBillListsTheModulesOfTheProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	release(t, moduleRoot(t), dir, "1.2.3", "linux/amd64")
	out, err := exec.Command("tar", "-C", dir, "--strip-components=2", "-xzf", filepath.Join(dir, "doorward_1.2.3_linux_amd64.tar.gz"), "doorward-1.2.3/bin/doorward").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program, err := os.ReadFile(filepath.Join(dir, "doorward"))
	if err != nil {
		t.Fatal(err)
	}
	named, hash := billed(t, filepath.Join(dir, "doorward_1.2.3_linux_amd64.cdx.json"))
	if diff := cmp.Diff(modules(t, filepath.Join(dir, "doorward")), named); diff != "" {
		t.Errorf("modules of the program and of the bill (-program +bill):\n%s", diff)
	}
	if want := fmt.Sprintf("%x", sha256.Sum256(program)); hash != want {
		t.Errorf("the bill has the digest %s, the program %s", hash, want)
	}
	t.Logf("measured: %d modules", len(named))
}

// modules are the modules that `go version -m` prints, and the standard library.
func modules(t *testing.T, program string) (all []string) {
	t.Helper()
	out, err := exec.Command("go", "version", "-m", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(out, []byte("\t=>\t")) {
		t.Error("a module is replaced: compare it here, too")
	}
	m := regexp.MustCompile(`: go([0-9.]+)`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("no version of Go in %s", out)
	}
	all = append(all, "std "+string(m[1])+" ")
	for _, m := range regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)\t(\S+)$`).FindAllSubmatch(out, -1) {
		all = append(all, fmt.Sprintf("%s %s %s", m[1], m[2], m[3]))
	}
	if len(all) < 10 {
		t.Fatalf("only %d modules in %s", len(all), out)
	}
	slices.Sort(all)
	return all
}

// billed are the modules of a bill, and the digest of its program.
func billed(t *testing.T, path string) (all []string, hash string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var bill struct {
		Metadata struct {
			Component struct {
				Hashes []struct{ Alg, Content string }
			}
		}
		Components []struct {
			Name, Version string
			Properties    []struct{ Name, Value string }
		}
	}
	if err := json.Unmarshal(text, &bill); err != nil {
		t.Fatal(err)
	}
	for _, c := range bill.Components {
		sum := ""
		for _, p := range c.Properties {
			sum += p.Value
		}
		all = append(all, fmt.Sprintf("%s %s %s", c.Name, c.Version, sum))
	}
	slices.Sort(all)
	for _, h := range bill.Metadata.Component.Hashes {
		hash += h.Content
	}
	return all, hash
}
