package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A database that is opened as it is can be read, and not written. It names the steps that it
// lacks, gets none of them, and can still be used by an older version.
func TestADatabaseOpenedAsItIsStaysSo(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		asIs := plus(second)
		asIs.AsIs = true
		look := func(want string) *DB {
			t.Helper()
			db, err := Open(t.Context(), p.options(asIs))
			must(t, err)
			if got := fmt.Sprint(db.Lacks()); got != want {
				t.Errorf("it lacks %s, wanted %s", got, want)
			}
			if err := db.Write(t.Context(), func(*Tx) error { return nil }); err == nil {
				t.Error("it was written")
			}
			return db
		}
		for range 2 { // looking makes no table
			must(t, look("[test-1 test-2]").Close())
		}
		old := p.open(t, Options{})
		must(t, old.Write(t.Context(), put("before", 1)))
		must(t, old.Close())
		for range 2 {
			db := look("[test-2]")
			if got := keys(t, db); got != "before," {
				t.Errorf("there are %s", got)
			}
			must(t, db.Close())
		}
		must(t, p.open(t, Options{}).Close()) // the older version
		must(t, p.open(t, plus(second)).Close())
		must(t, look("[]").Close())
		if _, err := Open(t.Context(), p.options(Options{AsIs: true})); !errors.Is(err, ErrNewer) {
			t.Errorf("the older version looks at the newer database: %v", err)
		}
	})
}

// TestWhatWasLeftBehindIsReadAsItIs shows that the database of a killed daemon, and a backup, which
// has no write-ahead log, can be read without a change.
func TestWhatWasLeftBehindIsReadAsItIs(t *testing.T) {
	t.Parallel()
	p, killed, saved := place{dir: t.TempDir()}, place{dir: t.TempDir()}, place{dir: t.TempDir()}
	db := p.open(t, Options{})
	must(t, db.Write(t.Context(), put("k", 1)))
	move := func(to place, from, name string) {
		b, err := os.ReadFile(filepath.Join(p.dir, from))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(to.dir, name), b, 0o600))
	}
	move(killed, fileName, fileName)
	move(killed, fileName+"-wal", fileName+"-wal")
	must(t, db.Close())
	must(t, p.open(t, plus(second)).Close())
	move(saved, fileName+".before-test-2", fileName)
	for what, at := range map[string]place{"killed": killed, "saved": saved} {
		for range 2 {
			db, err := Open(t.Context(), at.options(Options{AsIs: true}))
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if got := keys(t, db); got != "k," {
				t.Errorf("%s: there are %s", what, got)
			}
			must(t, db.Close())
		}
		if got := keys(t, at.open(t, Options{})); got != "k," {
			t.Errorf("%s, afterwards: there are %s", what, got)
		}
	}
}
