package retain_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/daemon/auditkey"
	"github.com/doorward/doorward/internal/daemon/retain"
	"github.com/doorward/doorward/internal/trust/audit"
)

func newKey(t testing.TB) *audit.Key {
	t.Helper()
	key, err := auditkey.LoadOrCreate(filepath.Join(t.TempDir(), "audit.key"))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func open(t testing.TB, dir string, o audit.Options) *audit.Log {
	t.Helper()
	l, err := audit.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func act(t testing.TB, l *audit.Log, n int) {
	t.Helper()
	for i := range n {
		seq, err := l.Append(&audit.Record{Kind: audit.Decision, Source: "gate", Action: "tools/call", Resource: fmt.Sprint("notes/", i), Decision: audit.Allow})
		if err != nil {
			t.Fatal(err)
		}
		l.Later(&audit.Record{Kind: audit.Outcome, Source: "gate", Action: "tools/call", Result: "ok", Ref: seq})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// clock goes on by a step each time that it is read. The log reads it in several goroutines.
type clock struct {
	mu   sync.Mutex
	now  time.Time
	step time.Duration
}

func newClock(now time.Time, step time.Duration) *clock { return &clock{now: now, step: step} }

func (c *clock) tick() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(c.step)
	return c.now
}

func (c *clock) set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

// whole fails unless the log verifies, also against what was kept elsewhere.
func whole(t testing.TB, dir string, key *audit.Key, kept ...audit.Mark) auditlog.Report {
	t.Helper()
	r, err := auditlog.Verify(dir, key.Verifier, kept...)
	if err != nil || !r.OK {
		t.Fatalf("%+v %v", r, err)
	}
	return r
}

func unrecorded(audit.Beginning) error { return nil }

func copied(t testing.TB, dir string) string {
	t.Helper()
	to := t.TempDir()
	must(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

// A prune that ends before any of its steps leaves a log that verifies and opens,
// and Finish does the remaining steps.
func TestAPruneThatEndsAtAnyStepIsFinishedByTheNextStart(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	base := t.TempDir()
	l := open(t, base, audit.Options{Key: key, SegmentBytes: 4000})
	act(t, l, 60)
	must(t, l.Close())
	numbers, _, err := audit.Segments(base, nil)
	must(t, err)
	through := numbers[len(numbers)-3]
	before := whole(t, base, key)
	errEnd := errors.New("the process ends here")
	steps := 0
	for stop, over := 0, false; !over; stop++ {
		dir, name, n := copied(t, base), "", 0
		l := open(t, dir, audit.Options{Key: key, SegmentBytes: 4000})
		kept, _ := l.Checkpointed()
		_, err := retain.Pruner{Log: l, Dir: dir, Before: unrecorded, Step: func(next string) error {
			if name = next; n == stop {
				return errEnd
			}
			n++
			return nil
		}}.Through(t.Context(), through)
		if over = err == nil; !over && !errors.Is(err, errEnd) {
			t.Fatal(err)
		}
		steps = stop
		left := copied(t, dir) // as the disk is without a Close
		r := whole(t, left, key, kept)
		if want := uint64(1); name == "begin" && r.Begins != want || name != "begin" && r.Begins <= want {
			t.Fatalf("before %q it begins with %d", name, r.Begins)
		}
		l = open(t, left, audit.Options{Key: key, SegmentBytes: 4000})
		act(t, l, 1)
		must(t, retain.Pruner{Log: l, Dir: left}.Finish())
		must(t, l.Close())
		if r = whole(t, left, key, kept); r.Begins+r.Records < before.Records {
			t.Fatalf("before %q: records are gone behind the beginning: %+v", name, r)
		}
		now, begin, err := audit.Segments(left, nil)
		must(t, err)
		files, err := filepath.Glob(filepath.Join(left, "*.jsonl"))
		must(t, err)
		if len(files) != len(now) || name != "begin" && begin.Segment != through {
			t.Fatalf("before %q: %v are left, and the log has %v", name, files, now)
		}
	}
	if steps != through+3 { // begin, each segment, trim, done
		t.Errorf("%d steps for %d segments", steps, through)
	}
}

func TestBoundsRemoveTheOldestAndNoMore(t *testing.T) {
	t.Parallel()
	dir, key := t.TempDir(), newKey(t)
	c := newClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Hour)
	l := open(t, dir, audit.Options{Key: key, SegmentBytes: 4000, Now: c.tick})
	act(t, l, 60)
	must(t, l.Close())
	now := c.now
	numbers, _, err := audit.Segments(dir, nil)
	must(t, err)
	size := func(from int) (sum int64) {
		for _, n := range append(numbers[from:], 0) {
			path := audit.SegmentPath(dir, n)
			if n == 0 {
				path = filepath.Join(dir, "checkpoints")
			}
			fi, err := os.Stat(path)
			must(t, err)
			sum += fi.Size()
		}
		return sum
	}
	newest := numbers[len(numbers)-1]
	for what, c := range map[string]struct {
		b    retain.Bounds
		want int
		turn bool
	}{
		"none":               {retain.Bounds{Bytes: -1}, 0, false},
		"all fits":           {retain.Bounds{Bytes: size(0)}, 0, false},
		"one byte too many":  {retain.Bounds{Bytes: size(0) - 1}, 1, false},
		"three stay":         {retain.Bounds{Bytes: size(len(numbers) - 3)}, newest - 3, false},
		"nothing stays":      {retain.Bounds{Bytes: 0}, newest, true},
		"the open one stays": {retain.Bounds{Bytes: 0, Closed: true}, newest - 1, false},
		"nothing is so old":  {retain.Bounds{Bytes: -1, Before: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}, 0, false},
		"all is old":         {retain.Bounds{Bytes: -1, Before: now.Add(time.Hour)}, newest - 1, false},
		"what comes is old":  {retain.Bounds{Bytes: -1, Before: now.AddDate(50, 0, 0)}, newest, true},
	} {
		p, err := c.b.Plan(dir, now.Add(2*time.Hour))
		if err != nil || p.Through != c.want || p.Turn != c.turn || p.Segments != c.want {
			t.Errorf("%s: %+v %v, want through %d", what, p, err, c.want)
		}
	}
	for n := 1; n < newest; n++ { // the boundary, by the records themselves
		var last time.Time
		for i, line := range bytes.Split(bytes.TrimSpace(read(t, audit.SegmentPath(dir, n))), []byte("\n")) {
			_, rest, _ := bytes.Cut(line, []byte(`"time":"`))
			at, err := time.Parse(time.RFC3339Nano, string(rest[:27]))
			must(t, err)
			if last = at; i == 0 && last.IsZero() {
				t.Fatal("no time")
			}
		}
		for before, want := range map[time.Time]int{last: n - 1, last.Add(1): n} {
			if p, err := (retain.Bounds{Bytes: -1, Before: before}).Plan(dir, now); err != nil || p.Through != want || p.Turn {
				t.Errorf("before %v: %+v %v, want through %d", before, p, err, want)
			}
		}
	}
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

// One archive takes the records of prune after prune before they are removed, and
// verifies with the public key alone. An archive that is altered or has a gap is
// refused.
func TestAnArchiveTakesInPruneAfterPrune(t *testing.T) {
	t.Parallel()
	dir, to, key := t.TempDir(), filepath.Join(t.TempDir(), "archive"), newKey(t)
	l := open(t, dir, audit.Options{Key: key, SegmentBytes: 4000})
	p := retain.Pruner{Log: l, Dir: dir, Before: unrecorded}
	for range 3 {
		act(t, l, 40)
		numbers, _, err := audit.Segments(dir, nil)
		must(t, err)
		through := numbers[len(numbers)-2]
		r, err := retain.Archive(dir, to, through, key.Verifier)
		must(t, err)
		b, err := p.Through(t.Context(), through)
		must(t, err)
		if r.Begins != 1 || r.Records != b.Seq || r.Covered != b.Seq {
			t.Errorf("%+v, and the log begins behind %d", r, b.Seq)
		}
	}
	later := t.TempDir()
	r, err := retain.Archive(dir, later, 0, key.Verifier)
	must(t, err)
	if whole(t, later, key).Begins != r.Begins || r.Begins == 1 {
		t.Errorf("of what is left: %+v", r)
	}
	if r, err := auditlog.Verify(to, newKey(t).Verifier); err != nil || r.OK {
		t.Errorf("it verifies with another key: %v", err)
	}
	for what, spoil := range map[string]func(dir string){
		"an altered record": func(dir string) {
			path := audit.SegmentPath(dir, 1)
			must(t, os.WriteFile(path, bytes.Replace(read(t, path), []byte("notes/3"), []byte("notes/4"), 1), 0o600))
		},
		"a gap": func(dir string) {
			numbers, _, err := audit.Segments(dir, nil)
			must(t, err)
			must(t, os.Remove(audit.SegmentPath(dir, numbers[len(numbers)-1])))
			must(t, os.Remove(audit.SegmentPath(dir, numbers[len(numbers)-2])))
		},
	} {
		bad := copied(t, to)
		spoil(bad)
		numbers, _, err := audit.Segments(dir, nil)
		must(t, err)
		if r, err := retain.Archive(dir, bad, numbers[0], key.Verifier); err == nil {
			t.Errorf("%s: it was continued: %+v", what, r)
		}
	}
}
