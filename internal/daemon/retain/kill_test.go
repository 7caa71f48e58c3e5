package retain_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/daemon/auditkey"
	"github.com/doorward/doorward/internal/daemon/retain"
	"github.com/doorward/doorward/internal/trust/audit"
)

// helperEnv makes this test binary the process that prunes until it is killed.
const helperEnv = "DOORWARD_RETAIN_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) == "" {
		os.Exit(m.Run())
	}
	if err := pruneUntilKilled(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// pruneUntilKilled appends and prunes, and prints each number that was acknowledged.
// It ends with its input.
func pruneUntilKilled(dir, keyPath string) error {
	go func() { io.Copy(io.Discard, os.Stdin); os.Exit(0) }()
	key, err := auditkey.LoadOrCreate(keyPath)
	if err != nil {
		return err
	}
	l, err := audit.Open(dir, audit.Options{Key: key, SegmentBytes: 2000, CheckpointEvery: time.Millisecond})
	if err != nil {
		return err
	}
	p := retain.Pruner{Log: l, Dir: dir, Before: unrecorded}
	if err := p.Finish(); err != nil {
		return err
	}
	for n := 0; ; n++ {
		seq, err := l.Append(&audit.Record{Kind: audit.Event, Source: "test", Action: "act"})
		if err != nil {
			return err
		}
		fmt.Println(seq)
		if n%25 != 24 {
			continue
		}
		plan, err := retain.Bounds{Bytes: 4000, Closed: true}.Plan(dir, time.Now())
		if err != nil || plan.Through == 0 {
			return fmt.Errorf("%+v: %w", plan, err)
		}
		if _, err := p.Through(context.Background(), plan.Through); err != nil {
			return err
		}
	}
}

// A log verifies after its writer was killed at any moment of appending and pruning,
// except for a torn end, and entirely after the next start. No record that was
// acknowledged and not pruned is lost.
func TestKillNeverBreaksALogThatIsPruned(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keyPath := filepath.Join(t.TempDir(), "audit.key")
	key, err := auditkey.LoadOrCreate(keyPath)
	must(t, err)
	begins := uint64(1)
	for round := range 40 {
		last := killed(t, dir, keyPath)
		if r, err := auditlog.Verify(dir, key.Verifier); err != nil || !r.OK && !strings.Contains(r.Reason, "unfinished") {
			t.Fatalf("round %d, before a start: %+v %v", round, r, err)
		}
		l := open(t, dir, audit.Options{Key: key, SegmentBytes: 2000})
		must(t, retain.Pruner{Log: l, Dir: dir}.Finish())
		must(t, l.Close())
		r := whole(t, dir, key)
		if r.Begins < begins || r.Begins+r.Records <= last {
			t.Fatalf("round %d: records %d to %d, after beginning %d and record %d", round, r.Begins, r.Begins+r.Records-1, begins, last)
		}
		begins = r.Begins
	}
	if begins < 1000 {
		t.Errorf("only %d records were pruned", begins-1)
	}
}

// killed runs the helper for a moment, kills it, and returns the last number that it
// printed.
func killed(t *testing.T, dir, keyPath string) (last uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0], dir, keyPath)
	cmd.Env = append(os.Environ(), helperEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	defer in.Close()
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	end := 30 + rand.IntN(300)
	for n := 0; lines.Scan(); n++ {
		if n == end {
			must(t, cmd.Process.Kill())
		}
		if _, err := fmt.Sscan(lines.Text(), &last); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); err == nil || last == 0 {
		t.Fatalf("the helper ended by itself behind %d: %v", last, err)
	}
	return last
}
