package audit

import (
	"bytes"
	"errors"
	"log/slog"
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
		var logged bytes.Buffer
		l := openLog(t, dir, Options{Key: key, CheckpointEvery: 10 * time.Second, Log: slog.New(slog.NewTextHandler(&logged, nil))})
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
		if logged.Len() > 0 {
			t.Errorf("logged: %s", &logged)
		}
		l.syncMu.Lock()
		l.checkpoints.path = dir // no file
		l.syncMu.Unlock()
		if _, err := l.Append(act()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if !bytes.Contains(logged.Bytes(), []byte("audit checkpoint could not be written")) {
			t.Errorf("a failure is not logged: %s", &logged)
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

// TestTheKeeperRestsWhenNothingWaits: until a checkpoint is due. Records that were not synced
// or not written make it go on, unless a sync has failed, after which nothing is written.
func TestTheKeeperRestsWhenNothingWaits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		broken error
		dirty  bool
		later  int
		ticks  bool
	}{
		{nil, false, 0, false},
		{nil, true, 0, true},
		{nil, false, 1, true},
		{nil, true, 1, true},
		{errors.New("sync"), true, 0, false},
		{errors.New("sync"), false, 1, false},
		{errors.New("sync"), false, 0, false},
	} {
		l := &Log{o: Options{CheckpointEvery: time.Hour}, broken: c.broken, dirty: c.dirty}
		l.next = newGroup(&l.mu)
		for range c.later {
			l.next.add(body{}, true)
		}
		want := time.Hour
		if c.ticks {
			want = time.Second
		}
		if got := l.rest(time.Second); got != want || l.alarm.ticking != c.ticks {
			t.Errorf("%+v: it rests for %v, ticking %v", c, got, l.alarm.ticking)
		}
	}
}

// TestASyncAfterAFailedOneFails: also when it could succeed, and when a record was written
// while the failed one was under way.
func TestASyncAfterAFailedOneFails(t *testing.T) {
	t.Parallel()
	failed := errors.New("a failed sync")
	for _, dirty := range []bool{false, true} {
		l := openLog(t, t.TempDir(), Options{Interval: time.Hour})
		l.mu.Lock()
		l.broken, l.dirty = failed, dirty
		l.mu.Unlock()
		if err := l.secure(); !errors.Is(err, failed) {
			t.Errorf("records that were not synced: %v; %v", dirty, err)
		}
	}
}

// TestOneCheckpointCoversARecord: the same tip is not signed twice, and an empty log is.
func TestOneCheckpointCoversARecord(t *testing.T) {
	t.Parallel()
	key, err := freshKey()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	l := openLog(t, dir, Options{Key: key, Interval: time.Hour, CheckpointEvery: time.Hour})
	for i, record := range []bool{true, false, false, true, false} {
		if record {
			if _, err := l.Append(act()); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.secure(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, CheckpointsName))
		if err != nil {
			t.Fatal(err)
		}
		want := 2 // the first is of the empty log
		if i > 2 {
			want = 3
		}
		if count := bytes.Count(text, []byte("\ntime ")); count != want {
			t.Errorf("step %d: %d checkpoints, want %d", i, count, want)
		}
	}
}
