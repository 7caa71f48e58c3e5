package audit

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestRecordsAreSyncedWithinTheInterval: and not more often, while records keep coming. After a
// pause the first record is synced earlier.
func TestRecordsAreSyncedWithinTheInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := openLog(t, t.TempDir(), Options{Interval: 100 * time.Millisecond})
		time.Sleep(time.Second)
		at := time.Now()
		for _, step := range []struct {
			after  time.Duration
			record bool
			dirty  bool
		}{
			{0, false, false},
			{1 * time.Millisecond, true, true},
			{52 * time.Millisecond, false, false},
			{60 * time.Millisecond, true, true},
			{112 * time.Millisecond, false, true},
			{162 * time.Millisecond, false, false},
			{10 * time.Second, false, false},
		} {
			time.Sleep(time.Until(at.Add(step.after)))
			synctest.Wait()
			if step.record {
				if _, err := l.Append(act()); err != nil {
					t.Fatal(err)
				}
			}
			if isDirty(l) != step.dirty {
				t.Errorf("after %v there are records that were not synced: %v", step.after, !step.dirty)
			}
		}
	})
}

// TestALaterRecordIsWrittenWithinItsDelay: by the keeper.
func TestALaterRecordIsWrittenWithinItsDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := openLog(t, t.TempDir(), Options{})
		time.Sleep(time.Minute)
		synctest.Wait()
		before := l.State().Seq
		l.Later(act())
		if l.State().Seq != before {
			t.Error("written at once")
		}
		time.Sleep(laterDelay)
		synctest.Wait()
		if l.State().Seq != before+1 {
			t.Errorf("not written after %v", laterDelay)
		}
	})
}

// TestACheckpointIsWrittenWhenItIsDue: at the end of CheckpointEvery while there are new
// records, and none otherwise.
func TestACheckpointIsWrittenWhenItIsDue(t *testing.T) {
	t.Parallel()
	key, err := freshKey()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		dir, at := t.TempDir(), time.Now()
		l := openLog(t, dir, Options{Key: key, CheckpointEvery: 10 * time.Second})
		var tip uint64
		for _, step := range []struct {
			after   time.Duration
			record  bool
			covered bool // the last record
			count   int  // of checkpoints, the one of the start included
		}{
			{1 * time.Second, true, false, 1},
			{9999 * time.Millisecond, false, false, 1},
			{10001 * time.Millisecond, false, true, 2},
			{12 * time.Second, true, false, 2},
			{19999 * time.Millisecond, false, false, 2},
			{20001 * time.Millisecond, false, true, 3},
			{55 * time.Second, false, true, 3},
			{60 * time.Second, true, false, 3},
			{60060 * time.Millisecond, false, true, 4},
		} {
			time.Sleep(time.Until(at.Add(step.after)))
			synctest.Wait()
			if step.record {
				if tip, err = l.Append(act()); err != nil {
					t.Fatal(err)
				}
			}
			last, _ := l.Checkpointed()
			text, err := os.ReadFile(filepath.Join(dir, CheckpointsName))
			if err != nil {
				t.Fatal(err)
			}
			if count := bytes.Count(text, []byte("\ntime ")); (last.Seq == tip) != step.covered || count != step.count {
				t.Errorf("after %v: %d of %d records are covered, by %d checkpoints", step.after, last.Seq, tip, count)
			}
		}
	})
}

// TestManyLaterRecordsDoNotWait: above laterBytes they are written at once.
func TestManyLaterRecordsDoNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := openLog(t, t.TempDir(), Options{})
		time.Sleep(time.Minute)
		synctest.Wait()
		before := l.State().Seq
		l.mu.Lock()
		l.next.size = laterBytes - len(newBody(act(), time.Now()).text) // as if there were others
		l.mu.Unlock()
		if l.Later(act()); l.State().Seq != before {
			t.Error("written below the limit")
		}
		if l.Later(act()); l.State().Seq != before+2 {
			t.Error("not written above the limit")
		}
	})
}
