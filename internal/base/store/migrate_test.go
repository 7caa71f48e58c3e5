package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/test/doortest"
)

var (
	second = Migration{Name: "test-2", SQL: []string{`CREATE TABLE second (x INTEGER) STRICT`, `INSERT INTO second (x) VALUES (42)`}}
	broken = Migration{Name: "test-2", SQL: []string{`CREATE TABLE second (x INTEGER) STRICT`, `INSERT INTO nowhere (x) VALUES (42)`}}
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
		if _, err := Open(t.Context(), p.options(Options{})); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), "test-2") {
			t.Errorf("the older version: %v", err)
		}
		other := Migration{Name: "other-1", SQL: second.SQL}
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
			if err == nil || !strings.Contains(err.Error(), "test-2, statement 2") {
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
	for _, name := range []string{"", "../x-1", "a b-1", "A-1", "ü-1", "test-1", "test-3", "other-2", "other-01", "other-0", "other", "-1", "1", "other-", "other-99999999999999999999"} {
		_, err := Open(t.Context(), place{dir: t.TempDir()}.options(plus(Migration{Name: name})))
		if err == nil {
			t.Errorf("%q was taken", name)
		}
	}
}

// Six daemons that start at once on an empty database do each migration once, in
// a schema of any name.
func TestMigrationsRaceSafely(t *testing.T) {
	t.Parallel()
	p := place{dsn: doortest.Postgres(t)}
	if _, err := Open(t.Context(), p.options(Options{Schema: strings.Repeat("x", 64)})); err == nil {
		t.Error("a name that PostgreSQL would cut was taken")
	}
	for _, name := range []string{"", "public", "one schema", strings.Repeat("ü", 31), `odd"; DROP SCHEMA public; --`} {
		var many []Migration
		for i := range 8 {
			many = append(many, Migration{Name: fmt.Sprint("race-", i+1), SQL: []string{
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

// A migration of a database that was migrated before is preceded by a copy of the
// file. A new database is not copied.
func TestABackupPrecedesEachChange(t *testing.T) {
	t.Parallel()
	p := place{dir: t.TempDir()}
	db := p.open(t, Options{})
	must(t, db.Write(t.Context(), put("before", 1)))
	must(t, db.Close())
	if found, _ := filepath.Glob(filepath.Join(p.dir, "*.before-*")); len(found) != 0 {
		t.Errorf("an empty database was saved: %v", found)
	}
	name := filepath.Join(p.dir, "doorward.db.before-test-2")
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

// step is a migration that makes a table with its own name.
func step(series string, n int) Migration {
	return Migration{Name: fmt.Sprint(series, "-", n), SQL: []string{fmt.Sprintf(`CREATE TABLE %s_%d (x INTEGER) STRICT`, series, n)}}
}

func stepsOf(t *testing.T, db *DB) (list string) {
	t.Helper()
	must(t, db.Read(t.Context(), func(tx *Tx) error {
		return tx.Each(func(scan func(...any) error) error {
			var name string
			err := scan(&name)
			list += name + " "
			return err
		}, appliedNames)
	}))
	return list
}

// Each series of migrations grows independently: its new steps follow its own
// steps, wherever those of other series are. A version that does not know a
// recorded step is refused.
func TestEachSeriesGrowsAtItsOwnEnd(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		a1, a2, a3, b1, b2, c1 := step("a", 1), step("a", 2), step("a", 3), step("b", 1), step("b", 2), step("c", 1)
		for _, c := range []struct {
			all  []Migration
			want string
		}{
			{[]Migration{a1, b1}, "a-1 b-1 "},
			{[]Migration{a1, a2, b1}, "a-1 b-1 a-2 "},
			{[]Migration{c1, b1, b2, a1, a2, a3}, "a-1 b-1 a-2 c-1 b-2 a-3 "},
			{[]Migration{a1, b1, a2, c1, a3, b2}, "a-1 b-1 a-2 c-1 b-2 a-3 "},
		} {
			db := p.open(t, Options{Migrations: c.all})
			if got := stepsOf(t, db); got != c.want {
				t.Errorf("done: %s, wanted %s", got, c.want)
			}
			must(t, db.Close())
		}
		for name, older := range map[string][]Migration{
			`"a-3", but this version knows a only up to 2`: {a1, a2, b1, b2, c1},
			`"c-1", which this version does not know`:      {a1, a2, a3, b1, b2},
			`"a-1", which this version does not know`:      {b1, b2, c1},
			`"b-1", which this version does not know`:      {a1, a2, a3, step("renamed", 1), step("renamed", 2), c1},
			`"a-2", but this version knows a only up to 1`: {a1, b1, b2, c1},
		} {
			_, err := Open(t.Context(), p.options(Options{Migrations: older}))
			if !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), name) {
				t.Errorf("the older version: %v, wanted %s", err, name)
			}
		}
	})
}

// A recorded list of steps that lacks an earlier step of a series is refused.
func TestADamagedListOfStepsIsRefused(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		all := []Migration{step("a", 1), step("a", 2), step("b", 1)}
		db := p.open(t, Options{Migrations: all})
		must(t, db.Write(t.Context(), func(tx *Tx) error {
			_, err := tx.Exec(`DELETE FROM store_migrations WHERE name = 'a-1'`)
			return err
		}))
		must(t, db.Close())
		_, err := Open(t.Context(), p.options(Options{Migrations: all}))
		if err == nil || errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), `store_migrations) is damaged: the step is "a-2", but "a-1" is expected`) {
			t.Errorf("opened: %v", err)
		}
	})
}

// A database whose steps were recorded in one order for all series is accepted,
// and none of its steps is done again.
func TestADatabaseOfOneListIsTakenOver(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		old := []string{"mail-1", "instruct-sessions-1", "library-1", "library-2"}
		db := p.open(t, Options{Migrations: []Migration{}})
		must(t, db.Write(t.Context(), func(tx *Tx) error {
			for i, name := range old {
				if _, err := tx.Exec(appliedInsert, i+1, name, tx.Now()); err != nil {
					return err
				}
			}
			return nil
		}))
		must(t, db.Close())
		var all []Migration
		for _, name := range old {
			all = append(all, Migration{Name: name, SQL: []string{`CREATE TABLE nobody_makes_this_again (x INTEGER)`}})
		}
		all = slices.Insert(all, 1, step("mail", 2))
		db = p.open(t, Options{Migrations: all})
		if got := stepsOf(t, db); got != strings.Join(old, " ")+" mail-2 " {
			t.Errorf("done: %s", got)
		}
		if n := number(t, db, `SELECT count(*) FROM mail_2`); n != 0 {
			t.Errorf("%d rows", n)
		}
	})
}

// When daemons of two versions start at once, the steps of the newer are done
// once, and the older is refused or opens first.
func TestVersionsStartAtOnce(t *testing.T) {
	t.Parallel()
	p := place{dsn: doortest.Postgres(t)}
	older := []Migration{step("a", 1), step("b", 1)}
	newer := []Migration{step("a", 1), step("a", 2), step("b", 1), step("b", 2)}
	together(8, func(i int) {
		all := older
		if i%2 == 1 {
			all = newer
		}
		db, err := Open(t.Context(), p.options(Options{Migrations: all}))
		if err != nil && (i%2 == 1 || !errors.Is(err, ErrNewer)) {
			t.Errorf("daemon %d: %v", i, err)
		}
		if db != nil {
			must(t, db.Close())
		}
	})
	if got := strings.Fields(stepsOf(t, p.open(t, Options{Migrations: newer}))); len(got) != 4 {
		t.Errorf("done: %v", got)
	}
}
