package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestAJobIsDoneWhollyOrNotAtAll(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		ctx := t.Context()
		must(t, db.Write(ctx, put("kept", 1)))
		err := db.Write(ctx, func(tx *Tx) error {
			must(t, put("gone", 1)(tx))
			return errOdd
		})
		if err != errOdd {
			t.Errorf("the error of the job came back as %v", err)
		}
		with := panics(func() {
			_ = db.Write(ctx, func(tx *Tx) error {
				must(t, put("panicked", 1)(tx))
				panic("at the disco")
			})
		})
		if with != "at the disco" {
			t.Errorf("the panic of the job came back as %v", with)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = db.Write(ctx, func(tx *Tx) error {
				must(t, put("left", 1)(tx))
				runtime.Goexit()
				return nil
			})
		}()
		<-ended
		must(t, db.Write(ctx, put("last", 1)))
		if got := keys(t, db); got != "kept,last," {
			t.Errorf("there are %s", got)
		}
	})
}

func TestJobsThatFailAmongOthersHarmNone(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		must(t, db.Write(t.Context(), put("taken", 1)))
		var wrong atomic.Int32
		together(60, func(i int) {
			var err error
			with := panics(func() {
				err = db.Write(t.Context(), func(tx *Tx) error {
					if err := put(fmt.Sprintf("%02d", i), int64(i))(tx); err != nil {
						return err
					}
					switch i % 4 {
					case 1:
						return errOdd
					case 2:
						return put("taken", 2)(tx)
					case 3:
						panic(errOdd)
					}
					return nil
				})
			})
			ok := err == nil && with == nil
			switch i % 4 {
			case 1:
				ok = err == errOdd
			case 2:
				ok = err != nil && !errors.Is(err, ErrUnavailable)
			case 3:
				ok = with == errOdd
			}
			if !ok {
				wrong.Add(1)
				t.Errorf("job %d: %v, %v", i, err, with)
			}
		})
		want := ""
		for i := 0; i < 60; i += 4 {
			want += fmt.Sprintf("%02d,", i)
		}
		if got := keys(t, db); got != want+"taken," {
			t.Errorf("there are %s", got)
		}
	})
}

// A job of which a statement failed fails, although it ignores the error, and its
// later statements return that error. SQLite is made to behave as PostgreSQL does.
func TestAJobThatHidesAFailureFails(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		must(t, db.Write(t.Context(), put("taken", 1)))
		err := db.Write(t.Context(), func(tx *Tx) error {
			first := put("taken", 2)(tx)
			if first == nil {
				t.Error("the same key went in twice")
			}
			if again := put("more", 1)(tx); again != first {
				t.Errorf("after %v came %v", first, again)
			}
			return nil
		})
		if err == nil || errors.Is(err, ErrUnavailable) {
			t.Errorf("it came back as %v", err)
		}
		if got := keys(t, db); got != "taken," {
			t.Errorf("there are %s", got)
		}
	})
}

func TestATransactionIsOverWithItsJob(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		var kept *Tx
		for _, run := range []func(context.Context, func(*Tx) error) error{db.Write, db.Read} {
			must(t, run(t.Context(), func(tx *Tx) error { kept = tx; return nil }))
			if _, err := kept.Exec(`DELETE FROM kv`); err != errOver {
				t.Errorf("used afterwards: %v", err)
			}
		}
	})
}

func TestAJobMayNotSteerItsTransaction(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		r := &recorder{}
		db := p.open(t, r.options())
		for _, query := range []string{"COMMIT", " commit ", "END", "ROLLBACK", "SAVEPOINT x", "\n\tRelease job", "BEGIN", "PRAGMA synchronous = OFF", "VACUUM"} {
			err := db.Write(t.Context(), func(tx *Tx) error {
				must(t, put("x", 1)(tx))
				_, err := tx.Exec(query)
				return err
			})
			if err != errOwn {
				t.Errorf("%s: %v", query, err)
			}
		}
		if got := keys(t, db); got != "" {
			t.Errorf("there are %s", got)
		}
	})
}

func TestWhatIsNotedIsRecordedBeforeTheCommit(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		r := &recorder{}
		db := p.open(t, r.options())
		r.hook = func(notes []any) {
			if n := number(t, db, `SELECT count(*) FROM kv`); n != 0 {
				t.Errorf("%d rows are there before their record", n)
			}
		}
		must(t, db.Write(t.Context(), func(tx *Tx) error {
			tx.Note("first")
			err := put("k", 1)(tx)
			tx.Note("second")
			return err
		}))
		r.hook = nil
		_ = db.Write(t.Context(), func(tx *Tx) error { tx.Note("of a job that fails"); return errOdd })
		must(t, db.Write(t.Context(), put("without a note", 1)))
		if got := r.text(); got != "[first second]" || r.calls != 1 {
			t.Errorf("recorded %s in %d calls", got, r.calls)
		}
	})
}

func TestWhatCannotBeRecordedIsNotDone(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		r := &recorder{fail: errOdd}
		db := p.open(t, r.options())
		var heard atomic.Int32
		defer db.Listen(func(topic string) {
			if topic != "" {
				heard.Add(1)
			}
		})()
		together(20, func(i int) {
			err := db.Write(t.Context(), func(tx *Tx) error {
				tx.Note(i)
				tx.Signal("topic")
				return put(fmt.Sprint(i), 1)(tx)
			})
			if !errors.Is(err, ErrRecord) || !errors.Is(err, errOdd) || errors.Is(err, ErrUnavailable) {
				t.Errorf("job %d: %v", i, err)
			}
		})
		r.mu.Lock()
		r.fail = nil
		r.mu.Unlock()
		must(t, db.Write(t.Context(), put("later", 1)))
		if got := keys(t, db); got != "later," || len(r.undo) > 0 {
			t.Errorf("there are %s, undone %v", got, r.undo)
		}
		if heard.Load() > 0 {
			t.Error("what was not committed was signalled")
		}
	})
}

// A job of Act that writes a row and adds no note is undone, whichever statement
// writes. A job that only reads needs no note.
func TestAnActWithoutANoteIsNotDone(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		r := &recorder{}
		db := p.open(t, r.options())
		must(t, db.Write(t.Context(), put("old", 1)))
		row := func(query string) func(*Tx) error {
			return func(tx *Tx) error { var k string; return tx.Row([]any{&k}, query) }
		}
		acts := map[string]func(*Tx) error{
			"insert":           put("new", 1),
			"update":           func(tx *Tx) error { _, err := tx.Exec(`UPDATE kv SET n = n + 1`); return err },
			"delete":           func(tx *Tx) error { _, err := tx.Exec(`DELETE FROM kv`); return err },
			"update returning": row(` update kv SET n = n + 1 RETURNING k`),
			"insert returning": row(`INSERT INTO kv (k, n) VALUES ('new', 1) RETURNING k`),
			"with":             row(`WITH x AS (SELECT 'new' AS k) INSERT INTO kv (k, n) SELECT k, 1 FROM x WHERE true RETURNING k`),
			"each": func(tx *Tx) error {
				return tx.Each(func(func(...any) error) error { return nil }, `DELETE FROM kv RETURNING k`)
			},
		}
		for name, act := range acts {
			if err := db.Act(t.Context(), act); !errors.Is(err, ErrUnrecorded) || !errors.Is(err, ErrRecord) {
				t.Errorf("%s: %v", name, err)
			}
			if n := number(t, db, `SELECT sum(n) FROM kv`); n != 1 || keys(t, db) != "old," {
				t.Errorf("%s was done", name)
			}
		}
		must(t, db.Act(t.Context(), row(`SELECT k FROM kv`)))
		must(t, db.Act(t.Context(), func(tx *Tx) error { tx.Note("an act"); return put("new", 1)(tx) }))
		if r.text() != "[an act]" || keys(t, db) != "new,old," {
			t.Errorf("recorded %s, there are %s", r.text(), keys(t, db))
		}
	})
}

func TestAStoreWithoutARecorderTakesNoNotes(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		err := db.Act(t.Context(), func(tx *Tx) error { tx.Note("an act"); return put("k", 1)(tx) })
		if !errors.Is(err, ErrRecord) || keys(t, db) != "" {
			t.Errorf("%v, there are %s", err, keys(t, db))
		}
	})
}

// Notes come in the order in which the jobs took effect.
func TestNotesComeInOrder(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		r := &recorder{}
		db := p.open(t, r.options())
		must(t, db.Write(t.Context(), put("counter", 0)))
		together(40, func(i int) {
			err := db.Write(t.Context(), func(tx *Tx) error {
				var n int
				if err := tx.Row([]any{&n}, `UPDATE kv SET n = n + 1 WHERE k = 'counter' RETURNING n`); err != nil {
					return err
				}
				tx.Note(n)
				if i%8 == 7 {
					return errOdd
				}
				tx.Note(-n)
				return nil
			})
			if err != nil && err != errOdd {
				t.Error(err)
			}
		})
		want := make([]any, 0, 70)
		for n := 1; n <= 35; n++ {
			want = append(want, n, -n)
		}
		if got := r.text(); got != fmt.Sprint(want) {
			t.Errorf("notes %s", got)
		}
	})
}

func TestAJobThatWasNotBegunIsNotRunWhenItsContextEnds(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		done, cancel := context.WithCancel(t.Context())
		cancel()
		for _, run := range []func(context.Context, func(*Tx) error) error{db.Write, db.Read} {
			if err := run(done, func(*Tx) error { t.Error("ran"); return nil }); !errors.Is(err, context.Canceled) {
				t.Errorf("with an ended context: %v", err)
			}
		}
		// A job that runs is carried to its end.
		ctx, cancel := context.WithCancel(t.Context())
		must(t, db.Write(ctx, func(tx *Tx) error {
			must(t, put("a", 1)(tx))
			cancel()
			return put("b", 1)(tx)
		}))
		if got := keys(t, db); got != "a,b," {
			t.Errorf("there are %s", got)
		}
	})
}

// A job that waits for the writer returns when its context ends, and is not run
// afterwards.
func TestAJobThatWaitsForTheWriterMayLeave(t *testing.T) {
	t.Parallel()
	db := place{dir: t.TempDir()}.open(t, Options{})
	hold, holding := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		first <- db.Write(t.Context(), func(tx *Tx) error {
			close(holding)
			<-hold
			return put("first", 1)(tx)
		})
	}()
	<-holding
	var ran atomic.Int32
	var left atomic.Int32
	together(20, func(int) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := db.Write(ctx, func(*Tx) error { ran.Add(1); return nil }); errors.Is(err, context.DeadlineExceeded) {
			left.Add(1)
		}
	})
	close(hold)
	must(t, <-first)
	must(t, db.Write(t.Context(), put("second", 1)))
	if ran.Load() != 0 || left.Load() != 20 {
		t.Errorf("%d left and %d were run", left.Load(), ran.Load())
	}
}

func TestTheClockStandsStillInATransaction(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ticks := time.UnixMilli(1_700_000_000_000)
		db := p.open(t, Options{Now: func() time.Time { ticks = ticks.Add(time.Second); return ticks }})
		var first, again int64
		must(t, db.Write(t.Context(), func(tx *Tx) error {
			first = tx.Now()
			time.Sleep(3 * time.Millisecond)
			again = tx.Now()
			return nil
		}))
		if first != again {
			t.Errorf("%d became %d", first, again)
		}
		var later int64
		must(t, db.Write(t.Context(), func(tx *Tx) error { later = tx.Now(); return nil }))
		if later <= first {
			t.Errorf("the next transaction is at %d, not after %d", later, first)
		}
		if p.dsn == "" && first%1000 != 0 {
			t.Errorf("%d is not of the clock that was given", first)
		}
		if off := time.Since(time.UnixMilli(first)); p.dsn != "" && (off < -time.Minute || off > time.Minute) {
			t.Errorf("the server's clock, on this host, is off by %s", off)
		}
	})
}

func TestStatementsAreCompiledOnce(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		round := func(i int) {
			must(t, db.Write(t.Context(), put(fmt.Sprint(i), 1)))
			number(t, db, `SELECT count(*) FROM kv WHERE n = ?1`, 1)
		}
		round(0)
		before := db.Stats().Compiled
		for i := range 500 {
			round(i + 1)
		}
		if n := db.Stats().Compiled - before; n != 0 {
			t.Errorf("500 further rounds compiled %d statements", n)
		}
	})
}

// More statements than the cache holds give right results, also the second time.
// TestACacheHasABound shows that the cache is bounded.
func TestMoreStatementsThanTheCacheHoldsWork(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		for range 2 {
			must(t, db.Read(t.Context(), func(tx *Tx) error {
				for i := range cached + 50 {
					var n int
					if err := tx.Row([]any{&n}, fmt.Sprintf(`SELECT ?1 + %d`, i), 1); err != nil || n != i+1 {
						return fmt.Errorf("%d: %d, %w", i, n, err)
					}
				}
				return nil
			}))
		}
	})
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db, err := Open(t.Context(), p.options(Options{}))
		must(t, err)
		inside, closing, answers := make(chan struct{}, 2), make(chan struct{}), make(chan error, 3)
		slow := func(job func(*Tx) error) func(*Tx) error {
			return func(tx *Tx) error {
				inside <- struct{}{}
				<-closing
				return job(tx)
			}
		}
		go func() { answers <- db.Write(t.Context(), slow(put("slow", 1))) }()
		go func() {
			answers <- db.Read(t.Context(), slow(func(tx *Tx) error {
				var n int
				return tx.Row([]any{&n}, `SELECT 1`)
			}))
		}()
		<-inside
		<-inside
		go func() { answers <- db.Close() }()
		await(t, "refusal of what comes after Close", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			err := db.Write(ctx, func(*Tx) error { return nil })
			return errors.Is(err, ErrUnavailable) && strings.Contains(err.Error(), "closed")
		})
		close(closing)
		for range 3 {
			must(t, <-answers)
		}
		for _, err := range []error{db.Write(t.Context(), put("late", 1)), db.Read(t.Context(), func(*Tx) error { return nil })} {
			if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "closed") {
				t.Errorf("after Close: %v", err)
			}
		}
		must(t, db.Close())
		if got := keys(t, p.open(t, Options{})); got != "slow," {
			t.Errorf("there are %s", got)
		}
	})
}
