package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// errHeld is the error of the job that holds the writer in behind.
var errHeld = errors.New("it only held the writer")

// behind lets n jobs wait while another one, which fails, holds the writer, and then releases
// them together. It runs in a bubble of synctest, which knows when all of them wait.
func behind(ctx context.Context, t *testing.T, db *DB, n int, job func(i int) func(*Tx) error) []error {
	t.Helper()
	return after(ctx, t, db, errHeld, n, job)
}

// after is behind with a job that holds the writer and returns result.
func after(ctx context.Context, t *testing.T, db *DB, result error, n int, job func(i int) func(*Tx) error) []error {
	t.Helper()
	hold, holding, first := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		first <- db.Write(t.Context(), func(*Tx) error { close(holding); <-hold; return result })
	}()
	<-holding
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = db.Write(ctx, job(i)) })
	}
	synctest.Wait()
	close(hold)
	all.Wait()
	if err := <-first; !errors.Is(err, result) {
		t.Errorf("the job that held the writer: %v", err)
	}
	return errs
}

// Jobs that begin to wait while another one runs share its commit.
func TestJobsJoinTheGroupThatRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := place{dir: t.TempDir()}.open(t, Options{})
		before := db.Stats()
		for _, err := range after(t.Context(), t, db, nil, 20, func(i int) func(*Tx) error { return put(fmt.Sprint(i), 1) }) {
			must(t, err)
		}
		if after := db.Stats(); after.Commits-before.Commits != 1 || after.Jobs-before.Jobs != 21 {
			t.Errorf("%d jobs took %d commits", after.Jobs-before.Jobs, after.Commits-before.Commits)
		}
	})
}

// Callers that repeat a job that fails delay the commit of another job by one run each.
func TestACallerOfFailingJobsDelaysACommitOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := place{dir: t.TempDir()}.open(t, Options{})
		commits := db.Stats().Commits
		hold, holding := make(chan struct{}), make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			if err := db.Write(t.Context(), func(*Tx) error { close(holding); <-hold; return nil }); err != nil {
				t.Error(err)
			}
		})
		<-holding
		for range 8 {
			all.Go(func() {
				runs := 0
				for db.Stats().Commits == commits {
					_ = db.Write(t.Context(), func(*Tx) error {
						if db.Stats().Commits == commits {
							runs++
						}
						return errOdd
					})
				}
				if runs > 1 {
					t.Errorf("%d runs before the commit", runs)
				}
			})
		}
		synctest.Wait()
		close(hold)
		all.Wait()
	})
}

// Three hundred jobs that wait take three commits and no more: one for each 128, with the
// job before them.
func TestJobsThatWaitShareACommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		db := place{dir: t.TempDir()}.open(t, r.options())
		before := db.Stats()
		for _, err := range behind(t.Context(), t, db, 300, func(i int) func(*Tx) error {
			return func(tx *Tx) error { tx.Note(i); return put(fmt.Sprint(i), 1)(tx) }
		}) {
			must(t, err)
		}
		after := db.Stats()
		if c := after.Commits - before.Commits; c != 3 || r.calls != 3 || after.Jobs-before.Jobs != 300 {
			t.Errorf("%d jobs took %d commits and %d records", after.Jobs-before.Jobs, c, r.calls)
		}
		if n := number(t, db, `SELECT count(*) FROM kv`); n != 300 {
			t.Errorf("%d rows", n)
		}
	})
}

// A job of a group is not run when its context ends before its turn. All others leave while the
// first one runs.
func TestAJobLeavesItsGroupUntilItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := place{dir: t.TempDir()}.open(t, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var ran atomic.Int32
		errs := behind(ctx, t, db, 20, func(i int) func(*Tx) error {
			return func(tx *Tx) error {
				ran.Add(1)
				cancel()
				time.Sleep(time.Millisecond) // in the bubble it lasts until all the others have seen it
				return put(fmt.Sprint(i), 1)(tx)
			}
		})
		done := 0
		for _, err := range errs {
			if err == nil {
				done++
			} else if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		must(t, db.Write(t.Context(), put("later", 1)))
		if n := number(t, db, `SELECT count(*) FROM kv`); int(n) != done+1 || done != int(ran.Load()) || done != 1 {
			t.Errorf("%d rows, %d done, %d were run", n, done, ran.Load())
		}
	})
}

// A foreign key that is checked at the COMMIT fails its own job only.
func TestADeferredForeignKeyFailsItsOwnJobAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := place{dir: t.TempDir()}.open(t, plus(Migration{Name: "child-1", SQL: []string{
			`CREATE TABLE child (k TEXT NOT NULL REFERENCES kv (k) DEFERRABLE INITIALLY DEFERRED) STRICT`}}))
		errs := behind(t.Context(), t, db, 30, func(i int) func(*Tx) error {
			return func(tx *Tx) error {
				if _, err := tx.Exec(`INSERT INTO child (k) VALUES (?1)`, fmt.Sprint(i)); err != nil || i%5 == 0 {
					return err
				}
				return put(fmt.Sprint(i), 1)(tx)
			}
		})
		for i, err := range errs {
			if (err == nil) != (i%5 != 0) || errors.Is(err, ErrUnavailable) {
				t.Errorf("job %d: %v", i, err)
			}
		}
		if n := number(t, db, `SELECT count(*) FROM child`); n != 24 {
			t.Errorf("%d rows", n)
		}
	})
}

// When the transaction is lost in the middle of a group, the jobs that have run
// fail, and the remaining and later ones are done.
func TestTheWriterRecoversFromALostTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		db := place{dir: t.TempDir()}.open(t, r.options())
		w := db.engine.(*sqlite).writer
		var turn atomic.Int32
		errs := behind(t.Context(), t, db, 20, func(i int) func(*Tx) error {
			return func(tx *Tx) error {
				tx.Note(i)
				if err := put(fmt.Sprint(i), 1)(tx); err != nil {
					return err
				}
				if turn.Add(1) == 10 {
					// SQLite does this by itself when it cannot go on.
					if _, err := w.conn.exec(context.Background(), "ROLLBACK", nil); err != nil {
						t.Error(err)
					}
					return errOdd
				}
				return nil
			}
		})
		lost, odd, good := 0, 0, 0
		for _, err := range errs {
			switch {
			case err == nil:
				good++
			case errors.Is(err, ErrUnavailable):
				lost++
			}
			if errors.Is(err, errOdd) {
				odd++
			}
		}
		if n := number(t, db, `SELECT count(*) FROM kv`); int(n) != good || len(r.notes) != good || good != 10 || odd == 0 {
			t.Errorf("%d rows, %d good, %d lost, %d odd, %d recorded", n, good, lost, odd, len(r.notes))
		}
		must(t, db.Write(t.Context(), put("later", 1)))
	})
}

// A job fails with ErrUnavailable while another program locks the file for too
// long. The store goes on afterwards.
func TestABusyFileIsUnavailable(t *testing.T) {
	t.Parallel()
	db := place{dir: t.TempDir()}.open(t, Options{})
	e := db.engine.(*sqlite)
	other, err := e.writer.open(t.Context())
	must(t, err)
	defer other.Close()
	_, err = other.exec(t.Context(), "BEGIN IMMEDIATE", nil)
	must(t, err)
	_, err = e.writer.conn.exec(t.Context(), "PRAGMA busy_timeout = 20", nil)
	must(t, err)
	if err := db.Write(t.Context(), put("k", 1)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("while it is busy: %v", err)
	}
	_, err = other.exec(t.Context(), "ROLLBACK", nil)
	must(t, err)
	must(t, db.Write(t.Context(), put("k", 1)))
}
