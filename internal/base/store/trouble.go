package store

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// troubles keeps why the last jobs failed because of the database. A database may serve
// reads while it accepts no writes: a full disk, a standby.
type troubles struct {
	reads, writes atomic.Pointer[error] // nil: the last ones did not fail
	retrying      atomic.Bool           // DB.retry runs
}

// read takes the outcome of a job that reads. An error of the job itself shows that the
// database works.
func (t *troubles) read(err error) error {
	if failed(err) {
		why := err // so that only a failure allocates
		t.reads.Store(&why)
	} else if !interrupted(err) {
		t.reads.Store(nil)
	}
	return err
}

// write takes the outcome of a job that may write. Only the commit of a changed row shows
// that the database accepts writes; any other commit is one of a job that reads. retry: the
// caller has to start DB.retry.
func (t *troubles) write(err error, changed bool) (retry bool) {
	switch {
	case failed(err):
		why := err
		t.writes.Store(&why)
		return t.retrying.CompareAndSwap(false, true)
	case err == nil:
		t.reads.Store(nil)
		if changed {
			t.writes.Store(nil)
		}
	}
	return false
}

// failed reports whether err is a failure of an open database.
func failed(err error) bool { return errors.Is(err, ErrUnavailable) && !errors.Is(err, errClosed) }

// interrupted reports whether the caller of a job did not wait for it, which says nothing
// about the database.
func interrupted(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errClosed)
}

// last reports whether retry has to go on. One that ends is followed by the next failure's.
func (t *troubles) last() bool {
	if t.writes.Load() != nil {
		return true
	}
	t.retrying.Store(false)
	return t.writes.Load() != nil && t.retrying.CompareAndSwap(false, true)
}

// retryEvery is how soon a database that accepted no write is tried again.
const retryEvery = 10 * time.Second

// retry writes a row, with the values that it has, until the database accepts a write, so
// that Trouble ends with its cause even if no caller writes.
func (db *DB) retry() {
	for db.troubles.last() {
		select {
		case <-db.ctx.Done():
			return
		case <-time.After(retryEvery):
		}
		_ = db.Write(db.ctx, func(tx *Tx) error { // Write keeps its outcome
			_, err := tx.Exec(`UPDATE store_migrations SET applied_at = applied_at WHERE position = 1`)
			return err
		})
	}
}

// Trouble returns why the last jobs failed because of the database; nil: they did not, or a
// later write succeeded. It asks nothing of the database.
func (db *DB) Trouble() error {
	for _, last := range []*error{db.troubles.writes.Load(), db.troubles.reads.Load()} {
		if last != nil {
			return *last
		}
	}
	return nil
}
