//go:build interop

package conformance

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// results are the rows of RESULTS.md, in the order in which the pairs ran.
type results struct{ rows []row }

type row struct {
	target
	outcomes []outcome
}

func (r *results) add(want target, got outcome) {
	last := len(r.rows) - 1
	if last < 0 || r.rows[last].route != want.route || r.rows[last].suite.name != want.suite.name || r.rows[last].suite.version != want.suite.version {
		r.rows = append(r.rows, row{target: want})
		last++
	}
	r.rows[last].outcomes = append(r.rows[last].outcomes, got)
}

// write replaces the file that CONFORMANCE_RESULTS names. Only a complete and
// successful series is published, so a partial or failed one leaves the file.
func (r *results) write(t *testing.T, runs int) {
	path := os.Getenv("CONFORMANCE_RESULTS")
	if path == "" || t.Failed() {
		return
	}
	for _, row := range r.rows {
		if len(row.outcomes) != runs {
			return
		}
	}
	if err := os.WriteFile(path, []byte(r.markdown(runs, time.Now().UTC())), 0o644); err != nil {
		t.Errorf("writing the results: %v", err)
	}
}

func (r *results) markdown(runs int, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Conformance results

Written by `+"`make conformance`"+` on %s, %s/%s, %s.

Suites: `+"`@modelcontextprotocol/conformance`"+` 0.1.16 and 0.2.0-alpha.12, server mode.
Fixture: go-sdk v1.8.0 `+"`conformance/everything-server`"+`, direct and behind the doorward binary on `+"`/mcp/{server}`"+`.
The suites send no Authorization header: the loopback listener has no credential, and the kernel's word on the socket's owner is what authenticates.

A target is the number of checks that pass at least. Behind Doorward server-sse-polling passes two checks more in 0.1.16 than alone, since Doorward's own streams can be resumed; its last check passes only where `+"`limits.stream`"+` makes Doorward end streams in mid-call.

Each pair ran %d times in a row; a cell is checks passed/failed. "requirements 2026-07-28" includes scenarios of the tasks extension, which the fixture does not have and which do not count; its exit status was 0 each time.

`, now.Format(time.DateOnly), runtime.GOOS, runtime.GOARCH, runtime.Version(), runs)
	b.WriteString("| route | suite | target |")
	for i := range runs {
		fmt.Fprintf(&b, " run %d |", i+1)
	}
	b.WriteString("\n|---|---|---|" + strings.Repeat("---|", runs) + "\n")
	for _, row := range r.rows {
		fmt.Fprintf(&b, "| %s | %s %s | %d |", row.route, row.suite.version, row.suite.name, row.passed)
		for _, o := range row.outcomes {
			fmt.Fprintf(&b, " %d/%d |", o.passed, o.failed)
		}
		b.WriteString("\n")
	}
	return b.String()
}
