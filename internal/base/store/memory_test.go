package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// The driver of SQLite panics when SQLite is out of memory, and again when the
// failed statement is closed. These tests use a small limit instead of large data.

const sorted = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
	SELECT i FROM n ORDER BY i % 7919, i`

func raw(tx *Tx) *sqlite3.Conn { return tx.s.(*sqliteConn).raw }

// starve leaves the connection little memory.
func starve(tx *Tx) { raw(tx).HardHeapLimit(1 << 20) }

// explode defines a function that panics in the middle of a statement.
func explode(t *testing.T, tx *Tx) {
	must(t, raw(tx).CreateFunction("explode", 1, 0, func(_ sqlite3.Context, arg ...sqlite3.Value) {
		if arg[0].Int64() == 100 {
			panic("no such luck")
		}
	}))
}

const exploding = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT explode(i) FROM n`

func none(func(dest ...any) error) error { return nil }

// ends fails the test when f does not end within a minute: waiting for a lost
// connection would not end.
func ends(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal(what + " does not end")
	}
}

// bursts are ways in which a statement makes the driver panic.
var bursts = map[string]func(*testing.T, *Tx) error{
	"a sort":           func(_ *testing.T, tx *Tx) error { starve(tx); return tx.Each(none, sorted) },
	"a row":            func(_ *testing.T, tx *Tx) error { starve(tx); return tx.Row([]any{new(int64)}, sorted) },
	"a value":          func(_ *testing.T, tx *Tx) error { starve(tx); return tx.Each(none, `SELECT zeroblob(5000000) || 'x'`) },
	"an argument":      func(_ *testing.T, tx *Tx) error { starve(tx); return tx.Each(none, `SELECT ?1`, make([]byte, 5<<20)) },
	"its own function": func(t *testing.T, tx *Tx) error { explode(t, tx); return tx.Each(none, exploding) },
}

func TestAReadThatTheDriverCannotDoIsAnError(t *testing.T) {
	t.Parallel()
	for name, burst := range bursts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := place{dir: t.TempDir()}.open(t, Options{})
			must(t, db.Write(t.Context(), put("before", 1)))
			ends(t, "reading", func() {
				for range 2 * readers {
					ctx, cancel := context.WithCancel(t.Context())
					err := db.Read(ctx, func(tx *Tx) error {
						err := burst(t, tx)
						if again := tx.Each(none, `SELECT 1`); again == nil {
							t.Error("the connection goes on")
						}
						return err
					})
					if !errors.Is(err, ErrUnavailable) || !errors.Is(err, errDriver) {
						t.Errorf("the read: %v", err)
					}
					cancel() // nothing is left that this could wake
				}
				if got := keys(t, db); got != "before," {
					t.Errorf("there are %s", got)
				}
				// No reader is left that keeps the log from being emptied.
				must(t, db.Write(t.Context(), put("after", 1)))
				must(t, db.Close())
			})
		})
	}
}

func TestAWriteThatTheDriverCannotDoLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, burst := range bursts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &recorder{}
			db := place{dir: t.TempDir()}.open(t, r.options())
			ends(t, "writing", func() {
				for i := range 3 {
					err := db.Write(t.Context(), func(tx *Tx) error {
						tx.Note("lost")
						return errors.Join(put("lost", 1)(tx), burst(t, tx))
					})
					if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUncertain) {
						t.Errorf("the write: %v", err)
					}
					must(t, db.Write(t.Context(), put(fmt.Sprint("k", i), 1)))
				}
				if got := keys(t, db); got != "k0,k1,k2," || r.text() != "[]" {
					t.Errorf("there are %s and the record %s", got, r.text())
				}
				must(t, db.Close())
			})
		})
	}
}

// A COMMIT during which the driver panics is uncertain and is reported to the
// record as undone. Listeners have to check everything. The store goes on.
func TestACommitThatTheDriverCannotDoIsUncertain(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	db := place{dir: t.TempDir()}.open(t, r.options())
	must(t, db.Write(t.Context(), put("before", 1)))
	// It panics once: closing the statement ends the COMMIT too.
	r.hook = func([]any) {
		var once sync.Once
		db.engine.(*sqlite).writer.conn.raw.CommitHook(func() bool {
			once.Do(func() { panic("no such luck") })
			return true
		})
	}
	ends(t, "writing", func() {
		heard := make(chan string, 8)
		stop := db.Listen(func(topic string) { heard <- topic })
		err := db.Write(t.Context(), func(tx *Tx) error { tx.Note("note"); return put("lost", 1)(tx) })
		if topic := <-heard; topic != "" {
			t.Errorf("listeners heard %q", topic)
		}
		stop()
		if !errors.Is(err, ErrUncertain) || !errors.Is(err, ErrUnavailable) || fmt.Sprint(r.undo) != "[note]" {
			t.Errorf("undone %v: %v", r.undo, err)
		}
		r.hook = nil
		must(t, db.Write(t.Context(), put("after", 1)))
		if got := keys(t, db); got != "after,before," && got != "after,before,lost," {
			t.Errorf("there are %s", got)
		}
		must(t, db.Close())
	})
}
