package audit_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/daemon/auditkey"
	"github.com/doorward/doorward/internal/trust/audit"
)

// helperWriter appends from four goroutines until it is killed, and prints a
// line for each record that was acknowledged.
func helperWriter(dir, keyPath string) {
	key, err := auditkey.LoadOrCreate(keyPath)
	if err != nil {
		panic(err)
	}
	l, err := audit.Open(dir, audit.Options{Key: key, SegmentBytes: 50_000, CheckpointEvery: 5 * time.Millisecond, Interval: 10 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	for w := range 4 {
		go func() {
			for i := 0; ; i++ {
				what := fmt.Sprintf("%d/%d-%d", os.Getpid(), w, i)
				l.Later(decision("later"))
				seq, err := l.Append(decision(what))
				if err != nil {
					panic(err)
				}
				os.Stdout.WriteString(fmt.Sprintln(seq, what)) // one write, shorter than PIPE_BUF
			}
		}()
	}
	io.Copy(io.Discard, os.Stdin) // ends with the parent
	os.Exit(0)
}

func TestKillNeverLosesWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	dir, keyDir := t.TempDir(), t.TempDir()
	keyPath := keyDir + "/audit.key"
	key, err := auditkey.LoadOrCreate(keyPath)
	if err != nil {
		t.Fatal(err)
	}
	acknowledged := map[uint64]string{}
	torn := 0
	for round := range 12 {
		cmd, out := helper(t, "writer", dir, keyPath)
		kill := 50 + rand.IntN(1500)
		for n := 0; ; n++ {
			if n == kill {
				if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			text, err := out.ReadString('\n')
			if err != nil {
				break // all that was in the pipe has been read
			}
			seq, what, _ := strings.Cut(strings.TrimSpace(text), " ")
			number, err := strconv.ParseUint(seq, 10, 64)
			if _, twice := acknowledged[number]; twice || err != nil {
				t.Fatalf("round %d: acknowledged %q, which is no number or not a new one", round, text)
			}
			acknowledged[number] = what
		}
		cmd.Wait()
		if r := verify(t, dir, key); !r.OK {
			torn++
			if !strings.Contains(r.Reason, "unfinished") {
				t.Fatalf("round %d, before a start: %+v", round, r)
			}
		}
		mustClose(t, open(t, dir, audit.Options{Key: key}))
		if r := verify(t, dir, key); !r.OK {
			t.Fatalf("round %d, after a start: %+v", round, r)
		}
	}
	es := entries(t, dir)
	for seq, what := range acknowledged {
		if seq > uint64(len(es)) || es[seq-1].Resource != what {
			t.Fatalf("record %d, acknowledged for %q, is not there", seq, what)
		}
	}
	if len(acknowledged) < 12*50 {
		t.Errorf("only %d acknowledged", len(acknowledged))
	}
	t.Logf("12 kills, %d torn ends, %d records, %d acknowledged, none lost", torn, len(es), len(acknowledged))
}

// helperHolder opens the log and holds it until its input ends.
func helperHolder(dir string) {
	l, err := audit.Open(dir, audit.Options{})
	fmt.Println(err == nil, errors.Is(err, audit.ErrLocked))
	if err != nil {
		os.Exit(0)
	}
	io.Copy(io.Discard, os.Stdin)
	if err := l.Close(); err != nil {
		panic(err)
	}
	os.Exit(0)
}

func TestOneWriterAtATime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, out := helper(t, "holder", dir)
	if answer, _ := out.ReadString('\n'); answer != "true false\n" {
		t.Fatalf("the first process: %q", answer)
	}
	_, out = helper(t, "holder", dir)
	if answer, _ := out.ReadString('\n'); answer != "false true\n" {
		t.Fatalf("a second process: %q", answer)
	}
	if _, err := audit.Open(dir, audit.Options{}); !errors.Is(err, audit.ErrLocked) {
		t.Fatalf("this process: %v", err)
	}
	if r, err := auditlog.Verify(dir, nil); err != nil || !r.OK || r.Records != 1 {
		t.Errorf("a reader beside the writer: %+v %v", r, err)
	}
	if err := first.Process.Kill(); err != nil { // only the first one, by its id
		t.Fatal(err)
	}
	first.Wait()
	mustClose(t, open(t, dir, audit.Options{}))
}

// A log opens while four readers verify it. Verify takes the lock for an instant,
// which Open must not take for that of another writer.
func TestReadersDoNotKeepAWriterOut(t *testing.T) {
	t.Parallel()
	dir, key := t.TempDir(), newKey(t)
	mustClose(t, open(t, dir, audit.Options{Key: key}))
	stop, done := make(chan struct{}), make(chan struct{})
	for range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case <-stop:
					return
				default:
					if r, err := auditlog.Verify(dir, key.Verifier); err != nil || !r.OK {
						t.Errorf("%+v %v", r, err)
						return
					}
				}
			}
		}()
	}
	for range 20 {
		l, err := audit.Open(dir, audit.Options{Key: key})
		if err != nil {
			t.Error(err)
			break
		}
		mustAppend(t, l, decision("a/b"))
		mustClose(t, l)
	}
	close(stop)
	for range 4 {
		<-done
	}
	mustVerify(t, dir, key, 62)
}
