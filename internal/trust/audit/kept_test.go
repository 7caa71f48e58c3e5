package audit_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/trust/audit"
)

// copyLog is a copy of the files of a log.
func copyLog(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// longLog is a log over several runs and segments, a copy of it at every
// checkpoint that was written, and the last of these checkpoints.
func longLog(t *testing.T, key *audit.Key) (dir string, older []string, last audit.Mark) {
	t.Helper()
	dir = t.TempDir()
	for run := range 3 {
		o := audit.Options{Key: key, SegmentBytes: 4 * 430, Checkpointed: func(m audit.Mark) { last = m }}
		l := open(t, dir, o)
		for i := range 9 {
			before := last
			mustAppend(t, l, decision(fmt.Sprintf("srv/%d-%d", run, i)))
			if last != before {
				older = append(older, copyLog(t, dir))
			}
		}
		mustClose(t, l)
		if got, ok := l.Checkpointed(); !ok || got != last {
			t.Fatalf("the last checkpoint is %+v, heard %+v", got, last)
		}
		older = append(older, copyLog(t, dir))
	}
	return dir, older[:len(older)-1], last
}

// A checkpoint that was kept elsewhere shows that records of a log were removed, or
// that an older copy or another log took its place, although such a copy is whole in
// itself.
func TestALogThatIsShorterThanWhatWasKeptIsFound(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	dir, older, kept := longLog(t, key)
	check := func(what, dir string, ok bool) {
		t.Helper()
		r, err := auditlog.Verify(dir, key.Verifier, kept)
		if err != nil || r.OK != ok || !ok && (r.FirstBad == 0 || r.Reason == "") || r.Kept == nil || *r.Kept != kept {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
	check("as it was", dir, true)
	whole := 0
	for i, old := range older {
		if r := verify(t, old, key); r.OK {
			whole++ // only the kept mark shows that it is older
		}
		check(fmt.Sprintf("copy %d of %d", i, len(older)), old, false)
	}
	if whole < 3 || len(older) < 6 {
		t.Fatalf("%d of %d older copies are whole: the test is about those", whole, len(older))
	}
	names := segmentNames(t, dir)
	text := string(readFile(t, filepath.Join(dir, "checkpoints")))
	starts := []int{0}
	for at := 0; ; {
		i := strings.Index(text[at:], "\n\ndoorward/audit\n")
		if i < 0 {
			break
		}
		at += i + 2
		starts = append(starts, at)
	}
	for n := range len(names) + 1 { // segments that are kept
		for c := range len(starts) + 1 { // checkpoints that are kept
			cut := copyLog(t, dir)
			for _, name := range names[n:] {
				if err := os.Remove(filepath.Join(cut, name)); err != nil {
					t.Fatal(err)
				}
			}
			if c < len(starts) {
				writeFile(t, filepath.Join(cut, "checkpoints"), []byte(text[:starts[c]]))
			}
			check(fmt.Sprintf("%d segments, %d checkpoints", n, c), cut, n == len(names) && c == len(starts))
		}
	}
	lines := slices.Collect(strings.Lines(string(readFile(t, filepath.Join(dir, names[len(names)-1])))))
	for n := range lines { // of the last segment, without checkpoints that would tell
		cut := copyLog(t, dir)
		writeFile(t, filepath.Join(cut, names[len(names)-1]), []byte(strings.Join(lines[:n], "")))
		check(fmt.Sprintf("%d lines of the last segment", n), cut, false)
	}
	empty := t.TempDir()
	check("nothing", empty, false)
	check("not even the directory", filepath.Join(empty, "none"), false)

	// Another log of the same key, longer than this one.
	other := t.TempDir()
	l := open(t, other, audit.Options{Key: key})
	for i := range 100 {
		mustAppend(t, l, decision(fmt.Sprint(i)))
	}
	mustClose(t, l)
	check("another log", other, false)
}

// Has finds the checkpoints of a log, and no mark with another hash or number.
func TestALogHasItsOwnCheckpoints(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	var marks []audit.Mark
	dir := t.TempDir()
	for range 4 {
		l := open(t, dir, audit.Options{Key: key, Checkpointed: func(m audit.Mark) { marks = append(marks, m) }})
		mustAppend(t, l, decision("a"))
		mustClose(t, l)
	}
	l := open(t, dir, audit.Options{Key: key})
	for _, m := range marks {
		other := m
		other.Hash = audit.Genesis
		beyond := m
		beyond.Seq += 1000
		between := m
		between.Seq++
		for what, c := range map[string]struct {
			m    audit.Mark
			want bool
		}{"its own": {m, true}, "another hash": {other, m.Hash == other.Hash}, "more records": {beyond, false}, "none about so many": {between, false}} {
			if has, err := auditlog.Has(l, c.m); has != c.want || err != nil {
				t.Errorf("%s %+v: %v, %v", what, c.m, has, err)
			}
		}
	}
	if has, err := auditlog.Has(open(t, t.TempDir(), audit.Options{Key: key}), marks[2]); has || err != nil {
		t.Errorf("an empty log: %v, %v", has, err)
	}
}
