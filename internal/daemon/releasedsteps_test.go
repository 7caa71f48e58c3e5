package daemon

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The text of a step that was released never changes: a database that has the step would
// differ from a new one. testdata/migrations.txt has a line for each step, its name and the
// SHA-256 of its statements. A new step adds a line; no other line changes.
func TestReleasedStepsOfTheSchemaDoNotChange(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("testdata/migrations.txt")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, m := range Migrations() {
		fmt.Fprintf(&got, "%s %x\n", m.Name, sha256.Sum256([]byte(strings.Join(m.SQL, ";\n"))))
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Errorf("a released step has changed, or a new one has no line (-want +got):\n%s", d)
	}
}
