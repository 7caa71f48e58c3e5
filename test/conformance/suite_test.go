//go:build interop

package conformance

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/doorward/doorward/test/fixture"
)

// suite is one way to call one version of the conformance package.
type suite struct {
	name    string   // as in RESULTS.md
	version string   // of @modelcontextprotocol/conformance
	module  []string // below node_modules
	args    []string
	unrated bool // frozen requirement sets run extension scenarios too, which do not count
}

var (
	c1All = suite{name: "all", version: "0.1.16",
		module: []string{"@modelcontextprotocol", "conformance", "dist", "index.js"}, args: []string{"--suite", "all"}}
	c2Legacy = suite{name: "requirements 2025-11-25", version: "0.2.0-alpha.12",
		module: []string{"conformance-next", "dist", "index.js"}, args: []string{"--requirements", "2025-11-25"}}
	c2Modern = suite{name: "all at 2026-07-28", version: "0.2.0-alpha.12",
		module: []string{"conformance-next", "dist", "index.js"}, args: []string{"--suite", "all", "--spec-version", "2026-07-28"}}
	c2Frozen = suite{name: "requirements 2026-07-28", version: "0.2.0-alpha.12",
		module: []string{"conformance-next", "dist", "index.js"}, args: []string{"--requirements", "2026-07-28"}, unrated: true}
)

// outcome counts the checks of one run: passed and failed as the suite counts
// them, and the warnings that it leaves out of both.
type outcome struct {
	passed, failed, warnings int
	exit                     int
	notes                    []string // every check that is neither passed nor mere information
}

// run executes the suite against url and reads the checks that it left behind.
func (s suite) run(t *testing.T, url string) outcome {
	t.Helper()
	dir := t.TempDir()
	args := append([]string{fixture.Module(t, s.module...), "server", "--url", url, "-o", dir}, s.args...)
	cmd := exec.Command(fixture.Node(t), args...)
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	o := outcome{exit: cmd.ProcessState.ExitCode()}
	if err != nil && o.exit < 0 {
		t.Fatalf("running the suite: %v\n%s", err, out)
	}
	reports, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil || len(reports) == 0 {
		t.Fatalf("the suite left no reports (exit %d):\n%s", o.exit, out)
	}
	for _, report := range reports {
		o.add(t, report)
	}
	sort.Strings(o.notes)
	return o
}

// stamped is the end of a report's directory name: server-SCENARIO-TIME.
var stamped = regexp.MustCompile(`^server-(.*)-\d{4}-\d\d-\d\dT.*$`)

func (o *outcome) add(t *testing.T, report string) {
	t.Helper()
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var checks []struct{ ID, Name, Status, ErrorMessage string }
	if err := json.Unmarshal(text, &checks); err != nil {
		t.Fatalf("reading a report: %v", err)
	}
	scenario := stamped.ReplaceAllString(filepath.Base(filepath.Dir(report)), "$1")
	for _, c := range checks {
		switch c.Status {
		case "SUCCESS":
			o.passed++
			continue
		case "FAILURE":
			o.failed++
		case "WARNING":
			o.warnings++
		default:
			continue
		}
		if !strings.HasPrefix(scenario, "tasks-") {
			o.notes = append(o.notes, c.Status+" "+scenario+" / "+c.Name+": "+c.ErrorMessage)
		}
	}
}
