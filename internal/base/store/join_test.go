package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// trial is one job of a caller, with what became of it.
type trial struct {
	name   string
	runs   int
	ended  bool // it panicked or ended its goroutine
	err    error
	synced bool // its note was recorded when Write returned
}

// trials are the jobs of many callers, and the order in which they ran.
type trials struct {
	db  *DB
	r   *recorder
	mu  sync.Mutex
	all []*trial
	ran []string
}

// do runs one job in one of the ways that jobs and their callers take.
func (ts *trials) do(name string, way int) {
	t := &trial{name: name}
	ts.mu.Lock()
	ts.all = append(ts.all, t)
	ts.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if way == 0 {
		go cancel()
	}
	w := ts.db.engine.(*sqlite).writer
	job := func(tx *Tx) error {
		t.runs++
		ts.mu.Lock()
		ts.ran = append(ts.ran, name)
		ts.mu.Unlock()
		tx.Note(name)
		if err := put(name, 1)(tx); err != nil {
			return err
		}
		switch way {
		case 1:
			t.ended = true
			panic(errOdd)
		case 2:
			t.ended = true
			runtime.Goexit()
		case 3:
			return errOdd
		case 4: // SQLite does this by itself when it cannot go on
			_, err := w.conn.exec(context.Background(), "ROLLBACK", nil)
			return errors.Join(errOdd, err)
		case 5: // the same, and the job does not know
			_, err := w.conn.exec(context.Background(), "ROLLBACK", nil)
			return err
		}
		return nil
	}
	done := make(chan struct{})
	go func() { // which Goexit may end
		defer close(done)
		_ = panics(func() { t.err = ts.db.Write(ctx, job) })
	}()
	<-done
	ts.r.mu.Lock()
	t.synced = slices.Contains(ts.r.notes, any(name))
	ts.r.mu.Unlock()
}

// Jobs of many callers, which join groups that run, run at most once each, whatever the others
// do: fail, panic, leave, or lose the transaction of all. Exactly those that are answered with
// success are in the database and, in the order in which they ran, in the record, from which
// failed commits are taken back. The last ones meet Close.
func TestJobsThatJoinAreAnsweredWithWhatBecameOfThem(t *testing.T) {
	t.Parallel()
	r, p := &recorder{}, place{dir: t.TempDir()}
	o := p.options(r.options())
	ts, record, groups := &trials{r: r}, o.Record, 0
	o.Record = func(notes []any) error {
		switch groups++; groups % 8 {
		case 0:
			return errOdd
		case 4: // the COMMIT fails
			ts.db.engine.(*sqlite).writer.conn.raw.CommitHook(func() bool { return false })
		}
		return record(notes)
	}
	var err error
	ts.db, err = Open(t.Context(), o)
	must(t, err)
	var closed sync.WaitGroup
	together(24, func(caller int) {
		random := rand.New(rand.NewPCG(uint64(caller), 1))
		for i := range 40 {
			if caller == 0 && i == 30 {
				closed.Go(func() { must(t, ts.db.Close()) })
			}
			ts.do(fmt.Sprintf("%02d.%02d", caller, i), random.IntN(40))
		}
	})
	closed.Wait()
	ts.check(t, p.open(t, Options{}))
}

// check compares the answers with the database and the record.
func (ts *trials) check(t *testing.T, db *DB) {
	rows := make(map[string]bool)
	must(t, db.Read(t.Context(), func(tx *Tx) error {
		return tx.Each(func(scan func(...any) error) error {
			var k string
			err := scan(&k)
			rows[k] = true
			return err
		}, `SELECT k FROM kv`)
	}))
	good := make(map[string]bool)
	for _, j := range ts.all {
		ok := j.err == nil && !j.ended
		good[j.name] = ok
		if j.runs > 1 || ok && (j.runs != 1 || !j.synced) || ok != rows[j.name] {
			t.Errorf("%s ran %d times, in the database: %t, recorded: %t, ended: %t: %v", j.name, j.runs, rows[j.name], j.synced, j.ended, j.err)
		}
	}
	var want []any
	for _, name := range ts.ran {
		if good[name] {
			want = append(want, name)
		}
	}
	kept := slices.DeleteFunc(slices.Clone(ts.r.notes), func(n any) bool { return slices.Contains(ts.r.undo, n) })
	if !slices.Equal(want, kept) || len(want) == 0 || len(ts.r.undo) == 0 {
		t.Errorf("%d of %d jobs succeeded, %d are in the record, %d were taken back", len(want), len(ts.all), len(kept), len(ts.r.undo))
	}
	if s := ts.db.Stats(); s.Jobs != int64(len(want)) || s.Commits == s.Jobs {
		t.Errorf("%d jobs in %d commits", s.Jobs, s.Commits)
	}
}
