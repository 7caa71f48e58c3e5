package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/test/doortest"
)

// A look at the checkpoints without a daemon leaves a database of an older version as it is, so
// that the daemon of that version can still use it, and says that it is older.
func TestALookAtTheCheckpointsMigratesNothing(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{store.SQLite, store.Postgres} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			old := store.Options{Dir: t.TempDir()}
			if engine == store.Postgres {
				old.Postgres = doortest.Postgres(t)
			}
			var log bytes.Buffer
			c := new(config.Config)
			c.Store.Postgres = secret.New(old.Postgres)
			o := Options{Config: c, StateDir: old.Dir, Log: slog.New(slog.NewTextHandler(&log, nil))}
			look := func(marks int, warns bool) {
				t.Helper()
				log.Reset()
				got, err := KeptMarks(t.Context(), o)
				if err != nil || len(got) != marks || strings.Contains(log.String(), "older version") != warns {
					t.Errorf("%d checkpoints, %v, log %q", len(got), err, log.String())
				}
			}
			look(0, false)
			series := func(names ...string) []store.Migration {
				return slices.DeleteFunc(Migrations(), func(m store.Migration) bool { return !slices.Contains(names, m.Name) })
			}
			old.Migrations = series("mail-1", "library-1")
			before := done(t, old)
			look(0, true)
			if got := done(t, old); got != before {
				t.Errorf("done: %s, before: %s", got, before)
			}
			old.Migrations = series("mail-1", "library-1", "audit-1")
			db, err := store.Open(t.Context(), old)
			if err != nil {
				t.Fatal(err)
			}
			err = db.Write(context.Background(), func(tx *store.Tx) error {
				return keeping{node: keptNode(c)}.write(tx, keptLast, audit.Mark{Seq: 7, Hash: "h", Time: "now"})
			})
			if err == nil {
				err = db.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			before = done(t, old)
			look(1, true)
			if got := done(t, old); got != before {
				t.Errorf("done: %s, before: %s", got, before)
			}
		})
	}
}
