package audit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/trust/audit"
)

// cutLog makes a closed log of n decisions and cuts it behind segment through.
// The removed segments are gone and the checkpoints are trimmed.
func cutLog(t testing.TB, key *audit.Key, n, perSegment, through int) string {
	t.Helper()
	dir := closedLog(t, key, n, perSegment)
	l := open(t, dir, audit.Options{Key: key})
	mustCut(t, l, through)
	removeAll(t, dir)
	if err := auditlog.TrimCheckpoints(l); err != nil {
		t.Fatal(err)
	}
	mustClose(t, l)
	return dir
}

func mustCut(t testing.TB, l *audit.Log, through int) audit.Beginning {
	t.Helper()
	b, err := auditlog.Cut(t.Context(), l, through, unrecorded)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func unrecorded(audit.Beginning) error { return nil }

func removeAll(t testing.TB, dir string) {
	t.Helper()
	paths, err := auditlog.Removable(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		if err := os.Remove(p); err != nil {
			t.Fatal(err)
		}
	}
}

// A log without its two oldest segments verifies, and all readers begin with the
// first record that is left. It has twelve records, four a segment, and then start
// and stop of the cut.
func TestALogWithoutItsOldestSegmentsIsWhole(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	dir := cutLog(t, key, 10, 4, 2)
	r := mustVerify(t, dir, key, 6)
	if r.Begins != 9 || r.BegunAt == "" || r.Covered != 14 {
		t.Errorf("%+v", r)
	}
	if b := readFile(t, filepath.Join(dir, "checkpoints")); bytes.Contains(b, []byte("\n4\n")) || !bytes.Contains(b, []byte("\n8\n")) {
		t.Errorf("the checkpoints about less than 8 records are still there:\n%s", b)
	}
	all, err := auditlog.Tail(dir, 100)
	if err != nil || len(all) != 6 || parse(t, all[0]).Seq != 9 {
		t.Errorf("tail: %d lines, %v", len(all), err)
	}
	var out bytes.Buffer
	if err := auditlog.Export(t.Context(), dir, &out); err != nil || bytes.Count(out.Bytes(), []byte("\n")) != 6 {
		t.Errorf("export: %v %s", err, &out)
	}
	n := 0
	for _, err := range auditlog.Backwards(t.Context(), dir) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if got := followed(t, dir, 1, 6); n != 6 || got[0] != 9 {
		t.Errorf("backwards %d records, followed %v", n, got)
	}
	l := open(t, dir, audit.Options{Key: key})
	if seq := mustAppend(t, l, decision("a/b")); seq != 16 {
		t.Errorf("it goes on with %d", seq)
	}
	mustClose(t, l)
	mustVerify(t, dir, key, 9)
}

// followed gives the numbers of n records from one on.
func followed(t *testing.T, dir string, from uint64, n int) (got []uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := auditlog.Follow(ctx, dir, from, func(line []byte) error {
		if got = append(got, parse(t, line).Seq); len(got) == n {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("followed %v: %v", got, err)
	}
	return got
}

func TestEveryFlippedByteOfACutLogIsFound(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	dir := cutLog(t, key, 3, 2, 1)
	whole := verify(t, dir, key)
	if !whole.OK || whole.Begins != 3 {
		t.Fatalf("%+v", whole)
	}
	for _, name := range append(segmentNames(t, dir), "checkpoints", "begin") {
		path := filepath.Join(dir, name)
		good := readFile(t, path)
		for i := range good {
			for _, mask := range []byte{1 << (i % 8), 0x20} {
				bad := bytes.Clone(good)
				bad[i] ^= mask
				writeFile(t, path, bad)
				if r := verify(t, dir, key); r.OK || r.FirstBad == 0 || r.Reason == "" {
					t.Fatalf("%s: byte %d (%q) xor %#x: %+v", name, i, good[i], mask, r)
				}
			}
		}
		for i := range good {
			if name != "begin" {
				break // a whole log may end sooner; checkpoints kept elsewhere find that
			}
			writeFile(t, path, good[:i])
			if r := verify(t, dir, key); r.OK {
				t.Fatalf("%s: cut to %d bytes: %+v", name, i, r)
			}
		}
		writeFile(t, path, good)
	}
	mustVerify(t, dir, key, whole.Records)
}

// A cut log whose files were removed, exchanged or forged without the key does not
// verify, and is not opened where Open can see it.
func TestABeginningIsNotForged(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	base := cutLog(t, key, 10, 2, 3)
	earlier := cutLog(t, key, 10, 2, 1)
	foreign := cutLog(t, newKey(t), 10, 2, 3)
	begin := func(dir string) func(*testing.T, string) {
		return func(t *testing.T, to string) {
			writeFile(t, filepath.Join(to, "begin"), readFile(t, filepath.Join(dir, "begin")))
		}
	}
	remove := func(names ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			for _, name := range names {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	checkpointAt := func(n int) []byte {
		all := bytes.SplitAfter(readFile(t, filepath.Join(base, "checkpoints")), []byte("\n\n"))
		return append(slices.Clone(all[2*n]), bytes.TrimSuffix(all[2*n+1], []byte("\n"))...)
	}
	rest := segmentNames(t, base)
	for name, do := range map[string]func(*testing.T, string){
		"removed":        remove("begin"),
		"emptied":        func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, "begin"), nil) },
		"of another key": begin(foreign),
		"of another log": begin(cutLog(t, key, 10, 2, 3)),
		"an earlier one": begin(earlier),
		"a checkpoint":   func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, "begin"), checkpointAt(0)) },
		"a checkpoint made to look so": func(t *testing.T, dir string) {
			writeFile(t, filepath.Join(dir, "begin"), []byte(strings.Replace(strings.Replace(string(checkpointAt(1)), "doorward/audit\n", "doorward/audit/begin\n", 1), "\n\n", "\nsegment 4\n\n", 1)))
		},
		"a link to one": func(t *testing.T, dir string) {
			remove("begin")(t, dir)
			if err := os.Symlink(filepath.Join(base, "begin"), filepath.Join(dir, "begin")); err != nil {
				t.Fatal(err)
			}
		},
		"more removed behind it":   remove(rest[0]),
		"one in the middle":        remove(rest[1]),
		"the last one removed":     remove(rest[len(rest)-1]),
		"all segments removed":     remove(rest...),
		"only the log removed":     remove(append(rest, "checkpoints")...),
		"no checkpoints behind it": remove("checkpoints"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := copyDir(t, base)
			if r := verify(t, dir, key); !r.OK {
				t.Fatalf("the copy: %+v", r)
			}
			do(t, dir)
			if r, err := auditlog.Verify(dir, key.Verifier); err == nil && r.OK {
				t.Errorf("it verifies: %+v", r)
			}
			if name == "one in the middle" || name == "removed" || name == "of another key" || strings.HasPrefix(name, "a checkpoint") {
				if l, err := audit.Open(dir, audit.Options{Key: key}); !errors.Is(err, audit.ErrDamaged) {
					t.Errorf("it starts: %v", err)
					if err == nil {
						l.Close()
					}
				}
			}
		})
	}
}

// A log verifies and opens with any subset of its old segments, because a process
// may end at any time between the signature and the last removal.
func TestWhatAnInterruptedRemovalLeftIsNoPartOfTheLog(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	base := closedLog(t, key, 10, 2)
	l := open(t, base, audit.Options{Key: key})
	b := mustCut(t, l, 3)
	mustClose(t, l)
	for left := range 1 << 3 {
		dir := copyDir(t, base)
		for n := 1; n <= 3; n++ {
			path := audit.SegmentPath(dir, n)
			switch {
			case left&(1<<(n-1)) == 0:
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			case n == 2:
				writeFile(t, path, []byte("not what it was\n"))
			}
		}
		r := verify(t, dir, key)
		if !r.OK || r.Begins != b.Seq+1 {
			t.Fatalf("%03b left: %+v", left, r)
		}
		if n, err := auditlog.Tail(dir, 100); err != nil || uint64(len(n)) != r.Records {
			t.Fatalf("%03b left: tail %d, %v", left, len(n), err)
		}
		l := open(t, dir, audit.Options{Key: key})
		removeAll(t, dir)
		if err := auditlog.TrimCheckpoints(l); err != nil {
			t.Fatal(err)
		}
		mustClose(t, l)
		mustVerify(t, dir, key, r.Records+2)
	}
}

// Cut refuses a prefix that was altered, which stays as evidence, a segment that
// cannot be cut, and a cut that is not recorded.
func TestAnAlteredSegmentIsNotCutOff(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	dir := closedLog(t, key, 10, 2)
	path := audit.SegmentPath(dir, 2)
	good := readFile(t, path)
	l := open(t, dir, audit.Options{Key: key})
	writeFile(t, path, bytes.Replace(good, []byte(`"allow"`), []byte(`"deny"`), 1))
	if _, err := auditlog.Cut(t.Context(), l, 3, unrecorded); !errors.Is(err, audit.ErrDamaged) {
		t.Errorf("an altered record was cut off: %v", err)
	}
	mustCut(t, l, 1)
	if _, err := auditlog.Cut(t.Context(), l, 2, unrecorded); !errors.Is(err, audit.ErrDamaged) {
		t.Errorf("an altered record was cut off: %v", err)
	}
	writeFile(t, path, good)
	mustCut(t, l, 2)
	for _, through := range []int{-1, 0, 1, 2, 6, 7, 100} {
		if b, err := auditlog.Cut(t.Context(), l, through, unrecorded); err == nil {
			t.Errorf("cut behind %d: %+v", through, b)
		}
	}
	errRecord := errors.New("it was not recorded")
	if _, err := auditlog.Cut(t.Context(), l, 3, func(audit.Beginning) error { return errRecord }); !errors.Is(err, errRecord) {
		t.Errorf("cut without a record: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := auditlog.Cut(ended, l, 3, unrecorded); !errors.Is(err, context.Canceled) {
		t.Errorf("cut after the end: %v", err)
	}
	mustClose(t, l)
	if r := verify(t, dir, key); !r.OK || r.Begins != 5 {
		t.Errorf("%+v", r)
	}
	if _, err := auditlog.Cut(t.Context(), open(t, t.TempDir(), audit.Options{}), 1, unrecorded); err == nil {
		t.Error("a log without a key was cut")
	}
}

// A checkpoint that was kept elsewhere shows that a log was replaced by an older
// copy, also if the log was cut in between.
func TestAnOlderCopyIsFoundOverACut(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	dir := closedLog(t, key, 10, 2)
	older := copyDir(t, dir)
	l := open(t, dir, audit.Options{Key: key})
	mustCut(t, l, 3)
	removeAll(t, dir)
	if err := auditlog.TrimCheckpoints(l); err != nil {
		t.Fatal(err)
	}
	mustClose(t, l)
	kept, _ := l.Checkpointed()
	for path, want := range map[string]bool{dir: true, older: false, t.TempDir(): false} {
		if r, err := auditlog.Verify(path, key.Verifier, kept); err != nil || r.OK != want {
			t.Errorf("%+v %v, want ok %v", r, err, want)
		}
	}
}

func TestTheNextRecordTurnsTheSegment(t *testing.T) {
	t.Parallel()
	dir, key := t.TempDir(), newKey(t)
	rotated := make(chan struct{}, 8)
	l := open(t, dir, audit.Options{Key: key, Rotated: func() { rotated <- struct{}{} }})
	mustAppend(t, l, decision("a/b"))
	l.Turn()
	l.Turn()
	mustAppend(t, l, decision("a/c"))
	mustAppend(t, l, decision("a/d"))
	if n := segmentNames(t, dir); len(n) != 2 || len(rotated) != 1 {
		t.Errorf("%v, %d rotations", n, len(rotated))
	}
	mustCut(t, l, 1)
	mustClose(t, l)
	removeAll(t, dir)
	mustVerify(t, dir, key, 3)
}

// Every reader finds a whole log while records are appended and cut off.
func TestReadersWhileTheLogIsCut(t *testing.T) {
	t.Parallel()
	dir, key := t.TempDir(), newKey(t)
	l := open(t, dir, audit.Options{Key: key, SegmentBytes: 4000})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 3000 {
			if _, err := l.Append(decision(fmt.Sprint(i))); err != nil {
				t.Error(err)
				return
			}
			if i%50 != 49 {
				continue
			}
			numbers, _, err := audit.Segments(dir, nil)
			if err != nil || len(numbers) < 2 {
				t.Error(numbers, err)
				return
			}
			if _, err := auditlog.Cut(t.Context(), l, numbers[len(numbers)-2], unrecorded); err != nil {
				t.Error(err)
				return
			}
			removeAll(t, dir)
			if err := auditlog.TrimCheckpoints(l); err != nil {
				t.Error(err)
			}
		}
	}()
	for over := false; !over && !t.Failed(); {
		select {
		case <-done:
			over = true
		default:
		}
		if r := verify(t, dir, key); !r.OK {
			t.Errorf("%+v", r)
		}
		if _, err := auditlog.Tail(dir, 200); err != nil {
			t.Error(err)
		}
		for _, err := range auditlog.Backwards(t.Context(), dir) {
			if err != nil {
				t.Error(err)
			}
		}
	}
	mustClose(t, l)
	if r := verify(t, dir, key); !r.OK || r.Begins < 2900 {
		t.Errorf("%+v", r)
	}
}
