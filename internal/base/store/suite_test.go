package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/doorward/doorward/test/doortest"
	"os"
	"path/filepath"
)

// place is one database, that tests open once or several times.
type place struct{ dir, dsn string }

func (p place) options(o Options) Options {
	o.Dir, o.Postgres = p.dir, p.dsn
	if o.Migrations == nil {
		o.Migrations = schema
	}
	return o
}

var schema = []Migration{{Name: "test-1", SQL: []string{
	`CREATE TABLE kv (k TEXT PRIMARY KEY, n INTEGER NOT NULL, b BLOB, r REAL, t TEXT) STRICT`,
	`CREATE TABLE log (id TEXT NOT NULL, box TEXT NOT NULL, seq INTEGER NOT NULL) STRICT`,
	`CREATE INDEX log_box ON log (box, seq)`,
}}}

// both runs a test on each engine.
func both(t *testing.T, test func(t *testing.T, p place)) {
	t.Helper()
	t.Parallel()
	t.Run(SQLite, func(t *testing.T) {
		t.Parallel()
		test(t, place{dir: t.TempDir()})
	})
	t.Run(Postgres, func(t *testing.T) {
		t.Parallel()
		test(t, place{dsn: doortest.Postgres(t)})
	})
}

func (p place) open(t testing.TB, o Options) *DB {
	t.Helper()
	db, err := Open(t.Context(), p.options(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error("closing:", err)
		}
	})
	return db
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(k string, n int64) func(*Tx) error {
	return func(tx *Tx) error {
		_, err := tx.Exec(`INSERT INTO kv (k, n) VALUES (?1, ?2)`, k, n)
		return err
	}
}

// keys lists the keys of kv in order, with a comma behind each.
func keys(t testing.TB, db *DB) (list string) {
	t.Helper()
	must(t, db.Read(t.Context(), func(tx *Tx) error {
		return tx.Each(func(scan func(...any) error) error {
			var k string
			err := scan(&k)
			list += k + ","
			return err
		}, `SELECT k FROM kv ORDER BY k`)
	}))
	return list
}

// number is the integer that a query returns.
func number(t testing.TB, db *DB, query string, args ...any) (n int64) {
	t.Helper()
	must(t, db.Read(context.WithoutCancel(t.Context()), func(tx *Tx) error { return tx.Row([]any{&n}, query, args...) }))
	return n
}

var errOdd = errors.New("odd")

// together runs n functions at once and waits for all.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// recorder stands for an audit log and keeps the notes of the commits.
type recorder struct {
	mu    sync.Mutex
	calls int
	notes []any
	fail  error
	undo  []any
	hook  func(notes []any)
}

func (r *recorder) options() Options {
	return Options{Record: r.record, Uncommitted: func(notes []any, _ error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.undo = append(r.undo, notes...)
	}}
}

func (r *recorder) record(notes []any) error {
	if r.hook != nil {
		r.hook(notes)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	r.calls++
	r.notes = append(r.notes, notes...)
	return nil
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprint(r.notes)
}

// panics reports what f panicked with.
func panics(f func()) (with any) {
	defer func() { with = recover() }()
	f()
	return nil
}

// TestAnyPathHoldsADatabase: a directory's name may have characters with a meaning in URLs.
func TestAnyPathHoldsADatabase(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a b", "a+b", "a%20b", "a?b=c&d", "a#b", "ä", "a'b", `a"b`} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		db, err := Open(t.Context(), place{dir: dir}.options(Options{}))
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if err := db.Close(); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "doorward.db")); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}
