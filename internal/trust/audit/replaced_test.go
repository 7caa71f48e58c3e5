package audit_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/test/doortest"
)

// changesUnderWriter are changes by another program after which the records that are written
// cannot be found, or cannot be covered by a checkpoint.
func changesUnderWriter() map[string]func(t *testing.T, dir string) {
	shorten := func(name string, by int64) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			fi, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			must(t, os.Truncate(path, max(fi.Size()-by, 0)))
		}
	}
	copyOver := func(t *testing.T, path string) {
		text := readFile(t, path)
		must(t, os.Remove(path))
		writeFile(t, path, text)
	}
	const segment = "00000001.jsonl"
	return map[string]func(t *testing.T, dir string){
		"the segment is removed":            func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, segment))) },
		"the segment is replaced by a copy": func(t *testing.T, dir string) { copyOver(t, filepath.Join(dir, segment)) },
		"the segment is a link": func(t *testing.T, dir string) {
			must(t, os.Rename(filepath.Join(dir, segment), filepath.Join(dir, "old")))
			must(t, os.Symlink("old", filepath.Join(dir, segment)))
		},
		"the segment is emptied":          shorten(segment, 1<<40),
		"the segment lacks its last byte": shorten(segment, 1),
		"the checkpoints are removed":     func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "checkpoints"))) },
		"the checkpoints are emptied":     shorten("checkpoints", 1<<40),
		"the last checkpoint is cut":      shorten("checkpoints", 1),
		"the directory is removed":        func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) },
		"the directory is replaced by a copy": func(t *testing.T, dir string) {
			must(t, os.Rename(dir, dir+".old"))
			must(t, os.CopyFS(dir, os.DirFS(dir+".old")))
		},
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestALogThatWasReplacedUnderItsWriterIsNotContinued: acts are refused, and the state says
// so, from the next sync or checkpoint on.
func TestALogThatWasReplacedUnderItsWriterIsNotContinued(t *testing.T) {
	t.Parallel()
	for name, change := range changesUnderWriter() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "audit")
			l := open(t, dir, audit.Options{Key: newKey(t), Interval: time.Millisecond, CheckpointEvery: 20 * time.Millisecond})
			for range 10 {
				mustAppend(t, l, decision("before"))
			}
			change(t, dir)
			_, err := l.Append(decision("at once"))
			doortest.Becomes(20*time.Second, func() bool { return err != nil || l.State().State != audit.StateOK })
			if _, err := l.Append(decision("after")); !errors.Is(err, audit.ErrUnavailable) {
				t.Errorf("acts go on without a record that can be found: %v", err)
			}
			if s := l.State(); s.State != audit.StateFailed || s.Reason == "" {
				t.Errorf("state %+v", s)
			}
		})
	}
}

// TestWithAlwaysNoActIsRecordedInAReplacedSegment: the first record after the change is refused.
func TestWithAlwaysNoActIsRecordedInAReplacedSegment(t *testing.T) {
	t.Parallel()
	for name, change := range changesUnderWriter() {
		if name == "the checkpoints are removed" || name == "the checkpoints are emptied" || name == "the last checkpoint is cut" {
			continue // the records can be found
		}
		dir := filepath.Join(t.TempDir(), "audit")
		l := open(t, dir, audit.Options{Key: newKey(t), Always: true})
		mustAppend(t, l, decision("before"))
		change(t, dir)
		if _, err := l.Append(decision("after")); !errors.Is(err, audit.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestALogThatWasMovedAndComesBackGoesOn: records are written to the moved file meanwhile.
func TestALogThatWasMovedAndComesBackGoesOn(t *testing.T) {
	t.Parallel()
	for _, always := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "audit")
			key := newKey(t)
			l := open(t, dir, audit.Options{Key: key, Always: always, Interval: time.Millisecond})
			mustAppend(t, l, decision("before"))
			must(t, os.Rename(dir, dir+".away"))
			mustAppend(t, l, decision("meanwhile"))
			time.Sleep(20 * time.Millisecond) // some syncs
			synctest.Wait()
			must(t, os.Rename(dir+".away", dir))
			mustAppend(t, l, decision("after"))
			if s := l.State(); s.State != audit.StateOK {
				t.Errorf("always %v: %+v", always, s)
			}
			must(t, l.Close())
		})
	}
}
