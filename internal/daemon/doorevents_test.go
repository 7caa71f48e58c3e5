package daemon

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/internal/trust/audit"
)

// recorded gives the records that the refusals make, a line each.
func recorded(t *testing.T, refuse func(*doorEvents)) []string {
	t.Helper()
	dir := t.TempDir()
	log, err := audit.Open(dir, audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := newDoorEvents(log)
	refuse(e)
	e.close()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	var shown auditlog.Showing
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(b) {
			line = shown.Show(line)
			if bytes.Contains(line, []byte(`"kind":"event"`)) && bytes.Contains(line, []byte(`"source":"listen"`)) {
				lines = append(lines, string(line))
			}
		}
	}
	return lines
}

// The record of a refused connection has the facts that the kernel gave. Each user
// has one of its own, and further refusals of that user are counted.
func TestARefusedConnectionIsNamedByTheKernelsFacts(t *testing.T) {
	t.Parallel()
	unix := func(uid uint32, pid int32) listen.Refusal {
		return listen.Refusal{Reason: listen.ReasonOtherUser, Peer: &attest.Credentials{UID: uid, GID: uid + 1, PID: pid, Instance: "boot/9", InstanceAttested: true}}
	}
	lines := recorded(t, func(e *doorEvents) {
		e.connection("unix:s", unix(1001, 7))
		e.connection("unix:s", unix(1001, 8))
		e.connection("unix:s", unix(1002, 9))
		e.connection("127.0.0.1:1", listen.Refusal{Reason: listen.ReasonOtherOwner, Owner: listen.OwnerOther, UID: 1003})
		e.connection("127.0.0.1:1", listen.Refusal{Reason: listen.ReasonOwnSocket, Owner: listen.OwnerSame, UID: 1000, Holder: peer.Holder{PID: 5, Process: "boot/5@6"}})
		e.connection("127.0.0.1:1", listen.Refusal{Reason: listen.ReasonNoOwner})
	})
	for i, want := range [][]string{
		{`{"name":"uid","value":"1001","grade":"attested"}`, `{"name":"gid","value":"1002","grade":"attested"}`, `{"name":"pid","value":"7","grade":"observed"}`, `{"name":"instance","value":"boot/9","grade":"attested"}`},
		{`{"name":"uid","value":"1002","grade":"attested"}`},
		{`{"name":"uid","value":"1003","grade":"observed"}`, listen.ReasonOtherOwner},
		{`{"name":"uid","value":"1000","grade":"observed"}`, `{"name":"pid","value":"5","grade":"observed"}`, `"boot/5@6"`, listen.ReasonOwnSocket},
		{listen.ReasonNoOwner},
		{`"count":1`, `"value":"1001"`},
	} {
		for _, part := range want {
			if i >= len(lines) || !strings.Contains(lines[i], part) {
				t.Errorf("record %d does not have %s:\n%s", i, part, strings.Join(lines, ""))
			}
		}
	}
	if len(lines) != 6 {
		t.Errorf("%d records:\n%s", len(lines), strings.Join(lines, ""))
	}
}

// The record and the memory stay bounded for refusals of 5,000 users, and those
// beyond the bound are counted together.
func TestManyRefusedUsersStayBounded(t *testing.T) {
	t.Parallel()
	const users = 5000
	lines := recorded(t, func(e *doorEvents) {
		for uid := range uint32(users) {
			e.connection("unix:s", listen.Refusal{Reason: listen.ReasonOtherUser, Peer: &attest.Credentials{UID: uid, PID: 1}})
		}
		if n := len(e.open); n > callersKept+1 {
			t.Errorf("%d are told apart", n)
		}
	})
	if len(lines) != callersKept+2 { // and the others: the first, and their count
		t.Errorf("%d records", len(lines))
	}
	if last := lines[len(lines)-1]; !strings.Contains(last, fmt.Sprintf(`"count":%d`, users-callersKept-1)) || strings.Contains(last, "facts") {
		t.Errorf("the last one: %s", last)
	}
}
