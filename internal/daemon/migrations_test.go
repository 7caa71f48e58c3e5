package daemon

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/test/doortest"
)

// before are the steps of a database that was made when all series were one list
// in one order.
var before = []string{"mail-1", "instruct-sessions-1", "library-1", "library-2"}

// TestADatabaseOfBeforeTheSeriesIsTakenOver: none of its steps is done again, and
// each series can add a step.
func TestADatabaseOfBeforeTheSeriesIsTakenOver(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{store.SQLite, store.Postgres} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			o := store.Options{Dir: t.TempDir()}
			if engine == store.Postgres {
				o.Postgres = doortest.Postgres(t)
			}
			all := Migrations()
			old := o
			for _, name := range before {
				i := slices.IndexFunc(all, func(m store.Migration) bool { return m.Name == name })
				if i < 0 {
					t.Fatalf("there is no step %s any more", name)
				}
				old.Migrations = append(old.Migrations, all[i])
			}
			if got := done(t, old); got != strings.Join(before, " ") {
				t.Errorf("done before: %s", got)
			}
			c := new(config.Config)
			c.Store.Postgres = secret.New(o.Postgres)
			db, err := openStore(t.Context(), Options{Config: c, StateDir: o.Dir}, store.Options{})
			if err == nil {
				err = db.Close()
			}
			if err != nil {
				t.Errorf("the daemon: %v", err)
			}
			for _, series := range []string{"mail", "instruct-sessions", "library"} {
				all = append(all, store.Migration{Name: next(all, series), SQL: []string{`CREATE TABLE ` + strings.ReplaceAll(series, "-", "_") + `_new (x INTEGER) STRICT`}})
			}
			slices.SortStableFunc(all, func(a, b store.Migration) int { return strings.Compare(a.Name, b.Name) })
			o.Migrations = all
			got := strings.Fields(done(t, o))
			if len(got) != len(all) || !slices.Equal(got[:len(before)], before) {
				t.Errorf("done after: %v", got)
			}
			if again := strings.Fields(done(t, o)); !slices.Equal(again, got) {
				t.Errorf("done at the next start: %v", again)
			}
		})
	}
}

// next is the name of the next step of a series.
func next(all []store.Migration, series string) string {
	n := 1
	for _, m := range all {
		if number, ok := strings.CutPrefix(m.Name, series+"-"); ok && !strings.Contains(number, "-") {
			n++
		}
	}
	return series + "-" + strconv.Itoa(n)
}

// done opens a database and gives the steps that were done to it, in order.
func done(t *testing.T, o store.Options) (list string) {
	t.Helper()
	db, err := store.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Read(t.Context(), func(tx *store.Tx) error {
		return tx.Each(func(scan func(...any) error) error {
			var name string
			err := scan(&name)
			list = strings.TrimSpace(list + " " + name)
			return err
		}, `SELECT name FROM store_migrations ORDER BY position`)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return list
}
