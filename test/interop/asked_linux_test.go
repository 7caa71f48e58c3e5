//go:build interop

package interop

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/doorward/doorward/test/doortest"
)

// questions counts the recorded questions: those decided, ended, and answered.
func questions(t *testing.T, d *doortest.Daemon) (decided, ended, answered int) {
	t.Helper()
	out, err := d.Command("audit", "export").Output()
	must(t, err)
	for line := range strings.Lines(string(out)) {
		var r struct{ Kind, Action, Result string }
		must(t, json.Unmarshal([]byte(line), &r))
		switch {
		case r.Action != "elicitation/create":
		case r.Kind == "decision":
			decided++
		default:
			ended++
			if r.Result == "ok" {
				answered++
			}
		}
	}
	return decided, ended, answered
}

// noticed waits until a daemon has ended all questions, because it noticed that the
// server has ended.
func noticed(t *testing.T, d *doortest.Daemon) {
	t.Helper()
	var decided, ended int
	if !doortest.Becomes(patience, func() bool { decided, ended, _ = questions(t, d); return decided == ended }) {
		t.Fatalf("%d questions were asked, %d are over", decided, ended)
	}
}
