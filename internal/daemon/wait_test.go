package daemon

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon/config"
)

// A held call is answered before its client gives up and after three quarters of that time,
// for each client and version of the table in docs/approvals.md. Any other client is assumed
// to wait a minute.
func TestAutoEndsBeforeTheClientGivesUp(t *testing.T) {
	page, err := os.ReadFile("../../docs/approvals.md")
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := os.ReadFile("../../test/package.json")
	if err != nil {
		t.Fatal(err)
	}
	auto := waitOf(config.Approvals{Wait: "auto"})
	row := regexp.MustCompile("(?m)^\\| [^|]+ \\| `([^`]+)` \\| ([0-9.]+) \\| (?:more than )?([0-9]+) s \\|")
	rows := row.FindAllStringSubmatch(string(page), -1)
	if len(rows) != 4 {
		t.Fatalf("%d clients in the table", len(rows))
	}
	for _, r := range rows {
		var seconds time.Duration
		if _, err := fmt.Sscan(r[3], &seconds); err != nil {
			t.Fatal(err)
		}
		if got, bears := auto(r[1]), seconds*time.Second; got >= bears || got < bears*3/4 {
			t.Errorf("%s: auto is %s, and the client waits %s", r[1], got, bears)
		}
		if !strings.Contains(string(pinned), `"`+r[2]+`"`) {
			t.Errorf("%s: %s was measured, and the tests use another version", r[1], r[2])
		}
	}
	if got := auto("another"); got >= time.Minute {
		t.Errorf("of another client auto is %s", got)
	}
}
