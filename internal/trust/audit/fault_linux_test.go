package audit

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// swapFile puts f in the place of the segment, as if the disk had changed its
// behaviour, and returns what stood there.
func swapFile(l *Log, f *os.File) *os.File {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.busy {
		l.mu.Unlock()
		time.Sleep(time.Millisecond)
		l.mu.Lock()
	}
	old := l.seg.file
	l.seg.file = f
	return old
}

// unsyncable gives a file that accepts writes and has no fsync: a pipe that is read
// until its end.
func unsyncable(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	go func() {
		b := make([]byte, 4096)
		for {
			if _, err := r.Read(b); err != nil {
				return
			}
		}
	}()
	return w
}

// chained counts the records of the first segment, which must be whole and
// continue each other.
func chained(dir string) (n uint64, err error) {
	b, err := os.ReadFile(SegmentPath(dir, 1))
	if err != nil {
		return 0, err
	}
	prev := []byte(Genesis)
	for text := range bytes.Lines(b) {
		l, ok := ParseLine(bytes.TrimSuffix(text, []byte("\n")))
		if n++; !ok || !l.Intact() || l.Seq != n || !bytes.Equal(l.Prev, prev) {
			return n, fmt.Errorf("record %d is not whole: %s", n, text)
		}
		prev = l.Hash
	}
	return n, nil
}

func TestAFailedSyncIsFinal(t *testing.T) {
	t.Parallel()
	for _, always := range []bool{true, false} {
		dir := t.TempDir()
		l := openLog(t, dir, Options{Always: always, Interval: 10 * time.Millisecond})
		if _, err := l.Append(act()); err != nil {
			t.Fatal(err)
		}
		doortest.Until(t, 30*time.Second, "the start is on the disk", func() bool { return l.State().Seq >= 2 && !isDirty(l) })
		good := swapFile(l, unsyncable(t))
		seq, err := l.Append(act())
		if always && !errors.Is(err, ErrUnavailable) {
			t.Fatalf("always: appended %d, %v", seq, err)
		}
		doortest.Until(t, 30*time.Second, fmt.Sprintf("always=%v: it fails", always), func() bool { return l.State().State == StateFailed })
		swapFile(l, good)
		for range 3 { // the disk is fine again, and nevertheless
			if _, err := l.Append(act()); !errors.Is(err, ErrUnavailable) || !errors.Is(err, syscall.EINVAL) {
				t.Errorf("always=%v: after a failed sync: %v", always, err)
			}
		}
		if s := l.State(); s.State != StateFailed || !strings.Contains(s.Reason, "disk") {
			t.Errorf("always=%v: state %+v", always, s)
		}
		if err := l.Close(); err == nil {
			t.Errorf("always=%v: Close hides the failure", always)
		}
		if n, err := chained(dir); err != nil || n != 2 {
			t.Errorf("always=%v: %d records, %v", always, n, err)
		}
	}
}

// writeFails gives a file whose every write fails with ENOSPC.
func writeFails(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestLaterRecordsAreKeptUpToALimitAndTheRestIsCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := openLog(t, dir, Options{Interval: time.Hour})
		good := swapFile(l, writeFails(t))
		if _, err := l.Append(act()); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("append: %v", err)
		}
		const many = 20_000
		for range many {
			l.Later(&Record{Kind: Outcome, Source: "gate", Resource: "kept or counted"})
		}
		l.mu.Lock()
		size := l.next.size
		l.mu.Unlock()
		if size > laterLimit {
			t.Errorf("%d bytes wait", size)
		}
		// The keeper tries several times; records that wait are neither lost nor doubled.
		time.Sleep(3 * laterDelay)
		synctest.Wait()
		swapFile(l, good)
		seq, err := l.Append(act())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, "00000001.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		kept := bytes.Count(b, []byte("kept or counted"))
		_, event, _ := bytes.Cut(b, []byte(`"action":"audit.lost","count":`))
		digits, event, _ := bytes.Cut(event, []byte(","))
		lost, err := strconv.Atoi(string(digits))
		if err != nil || lost == 0 || kept == 0 || kept+lost != many {
			t.Errorf("%d kept and %d lost of %d, %v", kept, lost, many, err)
		}
		if bytes.Contains(event, []byte("audit.lost")) {
			t.Error("the loss is told twice")
		}
		if n, err := chained(dir); err != nil || n != seq+1 {
			t.Errorf("%d records, %v, want %d", n, err, seq+1)
		}
	})
}

func TestAnAppendFailsOnAWriteErrorAndIsTriedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openLog(t, dir, Options{})
	readOnly, err := os.Open(filepath.Join(dir, "00000001.jsonl")) // every write is EBADF
	if err != nil {
		t.Fatal(err)
	}
	good := swapFile(l, readOnly)
	for range 3 {
		if _, err := l.Append(act()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("append: %v", err)
		}
	}
	if s := l.State(); s.State != StateFailed || s.Refused != 3 {
		t.Errorf("state %+v", s)
	}
	swapFile(l, good)
	if seq, err := l.Append(act()); err != nil || seq != 3 {
		t.Errorf("append: %d %v, want 3 behind audit.refused", seq, err)
	}
}

// A log whose file is shortened under its writer is damaged after the first failure,
// and Append refuses to continue it. It would otherwise be filled up with zeros.
func TestAFileShortenedFromOutside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, err := freshKey()
	if err != nil {
		t.Fatal(err)
	}
	l := openLog(t, dir, Options{Key: key, CheckpointEvery: time.Millisecond})
	for covered := uint64(0); covered == 0; {
		m, _ := l.Checkpointed()
		covered = m.Seq
	}
	if err := os.Truncate(filepath.Join(dir, "00000001.jsonl"), 10); err != nil {
		t.Fatal(err)
	}
	good := swapFile(l, writeFails(t))
	if _, err := l.Append(act()); err == nil {
		t.Fatal("appended to /dev/full")
	}
	swapFile(l, good)
	if _, err := l.Append(act()); !errors.Is(err, ErrUnavailable) || !errors.Is(err, ErrDamaged) {
		t.Errorf("append: %v", err)
	}
	if n, err := chained(dir); err == nil {
		t.Errorf("%d records are whole", n)
	}
}

// TestTroubleIsLoggedOnce: when it begins, and when it has ended.
func TestTroubleIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	l := openLog(t, t.TempDir(), Options{Interval: time.Hour, Log: slog.New(slog.NewTextHandler(&logged, nil))})
	for range 2 {
		logged.Reset()
		good := swapFile(l, writeFails(t))
		for range 3 {
			if _, err := l.Append(act()); err == nil {
				t.Fatal("appended to /dev/full")
			}
		}
		swapFile(l, good)
		for range 3 {
			if _, err := l.Append(act()); err != nil {
				t.Fatal(err)
			}
		}
		for _, text := range []string{"audit log cannot be written", "audit log can be written again"} {
			if n := strings.Count(logged.String(), text); n != 1 {
				t.Errorf("%q is logged %d times", text, n)
			}
		}
	}
}
