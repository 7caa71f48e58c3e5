package audit_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
)

func TestAFileThatMayNotGrow(t *testing.T) {
	t.Parallel()
	cmd, out := helper(t, "limited", t.TempDir())
	for {
		line, err := out.ReadString('\n')
		if line == "done\n" {
			break
		}
		if err != nil {
			t.Fatalf("the limited process ended early: %v %v", line, cmd.Wait())
		}
		t.Error(strings.TrimSpace(line))
	}
}

// helperLimited appends under RLIMIT_FSIZE, for which it is a process of its own, and
// prints what went wrong, and "done". A write that meets the limit in the middle of
// a line is short, and then fails with EFBIG.
func helperLimited(dir string) {
	complain := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	limit := func(n uint64) {
		var r syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &r); err != nil {
			complain("getrlimit: %v", err)
		}
		r.Cur = n
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &r); err != nil {
			complain("setrlimit: %v", err)
		}
	}
	check := func(when string, records uint64) {
		if r, err := auditlog.Verify(dir, nil); err != nil || !r.OK || r.Records != records {
			complain("%s: verify %+v %v, want %d records", when, r, err, records)
		}
	}
	l, err := audit.Open(dir, audit.Options{})
	if err != nil {
		complain("open: %v", err)
	}
	// A limit that leaves room for some records: the log goes on in segments, and each has its
	// caller in full.
	r := decision("a/b")
	r.Who = principal.New("uid:1000", principal.Fact{Name: "exe", Value: strings.Repeat("/bin", 9), Grade: principal.Attested})
	const perFile = 3000
	limit(perFile)
	seq := uint64(1)
	for range 50 {
		if seq, err = l.Append(r); err != nil {
			complain("append below a limit of %d bytes: %v", perFile, err)
		}
	}
	check("many segments", seq)
	for n := 2; ; n++ {
		text, err := os.ReadFile(audit.SegmentPath(dir, n))
		if err != nil && n > 5 {
			break
		}
		if first, _, _ := strings.Cut(string(text), "\n"); !strings.Contains(first, `"facts":`) {
			complain("segment %d begins without its caller: %s %v", n, first, err)
		}
	}
	// A limit that leaves room for a part of one: nothing can be written.
	for _, n := range []uint64{0, 1, 100, 300} {
		limit(n)
		l.Later(decision("later"))
		_, err = l.Append(decision("refused/refused"))
		if !errors.Is(err, audit.ErrUnavailable) || !errors.Is(err, syscall.EFBIG) {
			complain("append below a limit of %d bytes: %v", n, err)
		}
		if s := l.State(); s.State != audit.StateFull || s.Seq != seq {
			complain("state below a limit of %d bytes: %+v", n, s)
		}
		check(fmt.Sprint("limit ", n), seq)
	}
	limit(1 << 40)
	next, err := l.Append(decision("after/space"))
	if err != nil || next != seq+6 || l.State().State != audit.StateOK {
		complain("after the limit: %d %v %+v, want %d: audit.refused, four Later and this one", next, err, l.State(), seq+6)
	}
	if err := l.Close(); err != nil {
		complain("close: %v", err)
	}
	check("closed", next+1)
	fmt.Println("done")
	os.Exit(0)
}
