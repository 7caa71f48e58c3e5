package retain_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/internal/daemon/retain"
	"github.com/doorward/doorward/internal/trust/audit"
)

// contents returns the files of a directory.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		files[e.Name()] = string(read(t, filepath.Join(dir, e.Name())))
	}
	return files
}

// written makes a log of n acts and returns its directory.
func written(t testing.TB, key *audit.Key, n int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	l := open(t, dir, audit.Options{Key: key, SegmentBytes: 4000})
	act(t, l, n)
	must(t, l.Close())
	return dir
}

// TestAnArchiveIsNotContinuedByALogThatDoesNotContinueIt: an archive stays as it is, and its
// Archive fails, so that a prune removes nothing, for each log that is not the one of the
// archive or lacks records of it, with each segment as the last.
func TestAnArchiveIsNotContinuedByALogThatDoesNotContinueIt(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	base := written(t, key, 40)
	older := copied(t, base)
	l := open(t, base, audit.Options{Key: key, SegmentBytes: 4000})
	act(t, l, 40)
	must(t, l.Close())
	numbers, _, err := audit.Segments(base, nil)
	must(t, err)
	to := filepath.Join(t.TempDir(), "archive")
	_, err = retain.Archive(base, to, 0, key.Verifier)
	must(t, err)
	want := contents(t, to)

	ending := func(end func(whole, cut []byte) []byte) string { // a copy with another last segment
		dir := copied(t, base)
		path := audit.SegmentPath(dir, numbers[len(numbers)-1])
		text := read(t, path)
		must(t, os.WriteFile(path, end(text, text[:bytes.LastIndexByte(text[:len(text)-1], '\n')+1]), 0o600))
		return dir
	}
	cut := ending(func(_, cut []byte) []byte { return cut })
	fork := ending(func(whole, cut []byte) []byte { return append(bytes.Clone(cut), whole...) })
	logs := map[string]string{
		"an older copy":          older,
		"a cut log":              cut,
		"a fork":                 fork,
		"a shorter log":          written(t, key, 20),
		"a log of equal length":  written(t, key, 80),
		"a longer log":           written(t, key, 160),
		"a log with another key": written(t, newKey(t), 80),
	}
	for name, dir := range logs {
		all, _, err := audit.Segments(dir, nil)
		must(t, err)
		for _, through := range append([]int{0}, all...) {
			if (dir == cut || dir == fork) && through != 0 && through < numbers[len(numbers)-1] {
				continue // the log continues the archive up to there
			}
			if r, err := retain.Archive(dir, to, through, key.Verifier); err == nil {
				t.Errorf("%s, up to segment %d: %+v", name, through, r)
			}
			if diff := cmp.Diff(want, contents(t, to)); diff != "" {
				t.Fatalf("%s, up to segment %d, changes the archive: %s", name, through, diff)
			}
		}
	}
}

// TestAnArchiveIsNotContinuedByALogThatBeginsEarlier: the archive has no place for its first
// segments, which a prune would remove.
func TestAnArchiveIsNotContinuedByALogThatBeginsEarlier(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	dir, to := written(t, key, 80), filepath.Join(t.TempDir(), "archive")
	earlier := copied(t, dir)
	l := open(t, dir, audit.Options{Key: key, SegmentBytes: 4000})
	_, err := retain.Pruner{Log: l, Dir: dir, Before: unrecorded}.Through(t.Context(), 2)
	must(t, err)
	must(t, l.Close())
	_, err = retain.Archive(dir, to, 0, key.Verifier)
	must(t, err)
	want := contents(t, to)
	for through := range 4 {
		if r, err := retain.Archive(earlier, to, through, key.Verifier); err == nil {
			t.Errorf("up to segment %d: %+v", through, r)
		}
		if diff := cmp.Diff(want, contents(t, to)); diff != "" {
			t.Fatalf("up to segment %d: %s", through, diff)
		}
	}
}

// TestAnArchiveGrowsWithItsLog: copied at any moment, also when the newest segment has no
// record yet, it has the records and the last checkpoint of the log.
func TestAnArchiveGrowsWithItsLog(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "archive")
	for range 12 {
		l := open(t, dir, audit.Options{Key: key, SegmentBytes: 4000})
		act(t, l, 5)
		must(t, l.Close())
		numbers, _, err := audit.Segments(dir, nil)
		must(t, err)
		next := audit.SegmentPath(dir, numbers[len(numbers)-1]+1)
		must(t, os.WriteFile(next, nil, 0o600)) // as a daemon that was killed leaves it
		log := whole(t, dir, key)
		r, err := retain.Archive(dir, to, 0, key.Verifier)
		if err != nil || r.Records != log.Records || r.Covered != log.Covered {
			t.Fatalf("%+v of %+v: %v", r, log, err)
		}
	}
}

// TestALogIsNotItsOwnArchive: under whatever path, because a prune would remove the only copy.
func TestALogIsNotItsOwnArchive(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	dir := written(t, key, 40)
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(dir, link))
	want := contents(t, dir)
	for _, to := range []string{dir, dir + "/.", link} {
		for through := range 3 {
			if r, err := retain.Archive(dir, to, through, key.Verifier); err == nil {
				t.Errorf("%s, up to segment %d: %+v", to, through, r)
			}
		}
	}
	if diff := cmp.Diff(want, contents(t, dir)); diff != "" {
		t.Errorf("the log was changed: %s", diff)
	}
}
