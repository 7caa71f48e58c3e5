package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/doortest"
)

var (
	second = Migration{Name: "0002-second", SQL: []string{`CREATE TABLE second (x INTEGER) STRICT`, `INSERT INTO second (x) VALUES (42)`}}
	broken = Migration{Name: "0002-second", SQL: []string{`CREATE TABLE second (x INTEGER) STRICT`, `INSERT INTO nowhere (x) VALUES (42)`}}
)

func plus(m ...Migration) Options {
	return Options{Migrations: append(append([]Migration{}, schema...), m...)}
}

func TestMigrationsGoForwardOnceEach(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		must(t, db.Write(t.Context(), put("before", 1)))
		must(t, db.Close())
		for range 3 {
			db = p.open(t, plus(second))
			if keys(t, db) != "before," || number(t, db, `SELECT sum(x) FROM second`) != 42 {
				t.Error("the rows are not as they should be")
			}
			must(t, db.Close())
		}
		// The older version finds a step that it does not know.
		if _, err := Open(t.Context(), p.options(Options{})); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), "0002-second") {
			t.Errorf("the older version: %v", err)
		}
		other := Migration{Name: "0002-other", SQL: second.SQL}
		if _, err := Open(t.Context(), p.options(plus(other))); !errors.Is(err, ErrNewer) {
			t.Errorf("another step in its place: %v", err)
		}
		must(t, p.open(t, plus(second)).Close())
	})
}

func TestAMigrationThatFailsLeavesNothing(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		must(t, p.open(t, Options{}).Close())
		for range 2 {
			_, err := Open(t.Context(), p.options(plus(broken)))
			if err == nil || !strings.Contains(err.Error(), "0002-second, statement 2") {
				t.Errorf("the broken one: %v", err)
			}
		}
		must(t, p.open(t, Options{}).Close())
		if n := number(t, p.open(t, plus(second)), `SELECT count(*) FROM second`); n != 1 {
			t.Errorf("%d rows", n)
		}
	})
}

func TestNamesOfMigrationsAreChecked(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "../x", "a b", "A", "0001-first", "ü"} {
		_, err := Open(t.Context(), place{dir: t.TempDir()}.options(plus(Migration{Name: name})))
		if err == nil {
			t.Errorf("%q was taken", name)
		}
	}
}

// Several daemons start at once on an empty database.
func TestMigrationsRaceSafely(t *testing.T) {
	t.Parallel()
	p := place{dsn: doortest.Postgres(t)}
	if _, err := Open(t.Context(), p.options(Options{Schema: strings.Repeat("x", 64)})); err == nil {
		t.Error("a name that PostgreSQL would cut was taken")
	}
	for _, name := range []string{"", "public", "one schema", strings.Repeat("ü", 31), `odd"; DROP SCHEMA public; --`} {
		var many []Migration
		for i := range 8 {
			many = append(many, Migration{Name: fmt.Sprintf("%04d", i), SQL: []string{
				fmt.Sprintf(`CREATE TABLE t%d (x INTEGER NOT NULL) STRICT`, i), fmt.Sprintf(`INSERT INTO t%d (x) VALUES (1)`, i)}})
		}
		dbs := make([]*DB, 6)
		together(len(dbs), func(i int) {
			var err error
			if dbs[i], err = Open(t.Context(), p.options(Options{Schema: name, Migrations: many})); err != nil {
				t.Error(err)
			}
		})
		for _, db := range dbs {
			if db == nil {
				continue
			}
			for i := range many {
				if n := number(t, db, fmt.Sprintf(`SELECT count(*) FROM t%d`, i)); n != 1 {
					t.Errorf("step %d was done %d times", i, n)
				}
			}
			must(t, db.Close())
		}
	}
}

func TestSchemasAreApart(t *testing.T) {
	t.Parallel()
	p := place{dsn: doortest.Postgres(t)}
	a, b := p.open(t, Options{Schema: "a"}), p.open(t, Options{Schema: "b"})
	must(t, a.Write(t.Context(), put("in a", 1)))
	if keys(t, a) != "in a," || keys(t, b) != "" {
		t.Error("one schema is seen from the other")
	}
}

// Before a database that holds something is changed, there is a copy of it.
func TestABackupPrecedesEachChange(t *testing.T) {
	t.Parallel()
	p := place{dir: t.TempDir()}
	db := p.open(t, Options{})
	must(t, db.Write(t.Context(), put("before", 1)))
	must(t, db.Close())
	if found, _ := filepath.Glob(filepath.Join(p.dir, "*.before-*")); len(found) != 0 {
		t.Errorf("an empty database was saved: %v", found)
	}
	name := filepath.Join(p.dir, "doorward.db.before-0002-second")
	if _, err := Open(t.Context(), p.options(plus(broken))); err == nil {
		t.Fatal("the broken one passed")
	}
	db = p.open(t, plus(second))
	must(t, db.Write(t.Context(), put("after", 1)))
	must(t, db.Close())
	fi, err := os.Stat(name)
	must(t, err)
	if fi.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %04o", fi.Mode().Perm())
	}
	if left, _ := filepath.Glob(filepath.Join(p.dir, "*.part*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	// The copy opens with the older version and holds what was there.
	old := place{dir: t.TempDir()}
	b, err := os.ReadFile(name)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(old.dir, fileName), b, 0o600))
	if got := keys(t, old.open(t, Options{})); got != "before," {
		t.Errorf("the copy holds %s", got)
	}
}

func TestASecondDaemonIsRefused(t *testing.T) {
	t.Parallel()
	p := place{dir: t.TempDir()}
	var opened, locked atomic.Int32
	var mu sync.Mutex
	var open *DB
	together(8, func(int) {
		db, err := Open(t.Context(), p.options(Options{}))
		switch {
		case err == nil:
			opened.Add(1)
			mu.Lock()
			open = db
			mu.Unlock()
		case errors.Is(err, ErrLocked):
			locked.Add(1)
		default:
			t.Error(err)
		}
	})
	if opened.Load() != 1 || locked.Load() != 7 {
		t.Errorf("%d opened, %d were refused", opened.Load(), locked.Load())
	}
	must(t, open.Close())
	must(t, p.open(t, Options{}).Close())
}
