package store

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/doorward/doorward/test/doortest"
)

// A statement can fail because the database is not as the daemon made it: rights were revoked,
// a table was removed, another session keeps a lock. Trouble then has the reason, and the next
// job works once the cause is removed.
func TestAFailureOfTheStateOfTheDatabaseIsATrouble(t *testing.T) {
	t.Parallel()
	jobs := map[string]func(*DB) error{
		"write": func(db *DB) error { return db.Write(context.Background(), put(rand.Text(), 1)) },
		"read": func(db *DB) error {
			return db.Read(context.Background(), func(tx *Tx) error { return tx.Each(none, `SELECT n FROM kv`) })
		},
	}
	for code, c := range map[string]struct{ spoil, mend string }{
		"42501": {`REVOKE ALL ON kv FROM ROLE`, `GRANT ALL ON kv TO ROLE`},
		"42P01": {`ALTER TABLE kv RENAME TO gone`, `ALTER TABLE gone RENAME TO kv`},
		"42703": {`ALTER TABLE kv RENAME n TO m`, `ALTER TABLE kv RENAME m TO n`},
		"55P03": {`BEGIN; LOCK TABLE kv`, `ROLLBACK`},
	} {
		for what, job := range jobs {
			t.Run(what+" "+code, func(t *testing.T) {
				t.Parallel()
				db, admin := ofARole(t)
				must(t, job(db))
				admin(c.spoil)
				err := job(db)
				if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), code) || db.Trouble() == nil {
					t.Errorf("meanwhile: %v, trouble %v", err, db.Trouble())
				}
				admin(c.mend)
				must(t, job(db))
				if err := db.Trouble(); err != nil {
					t.Errorf("afterwards: trouble %v", err)
				}
			})
		}
	}
}

// ofARole returns a store of a role that is no superuser, and a function that runs SQL as the owner
// of its tables. ROLE in it is the role.
func ofARole(t *testing.T) (db *DB, admin func(sql string)) {
	t.Helper()
	dsn := doortest.Postgres(t)
	owner, err := pgconn.Connect(t.Context(), dsn)
	must(t, err)
	role := "r" + strings.ToLower(rand.Text())
	exec := func(sql string) error {
		_, err := owner.Exec(context.Background(), strings.ReplaceAll(sql, "ROLE", role)).ReadAll()
		return err
	}
	t.Cleanup(func() {
		if err := errors.Join(exec(`DROP OWNED BY ROLE; DROP USER ROLE`), owner.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	must(t, place{dsn: dsn}.open(t, Options{}).Close())
	must(t, exec(`CREATE USER ROLE; GRANT ALL ON ALL TABLES IN SCHEMA public TO ROLE; GRANT ALL ON SCHEMA public TO ROLE`))
	user := strings.Replace(dsn, "user=doorward", "user="+role+" lock_timeout=200ms", 1)
	return place{dsn: user}.open(t, Options{}), func(sql string) { must(t, exec(sql)) }
}

// A daemon has its name also where the server ends sessions that are idle.
func TestANameOutlivesTheTimeoutOfIdleSessions(t *testing.T) {
	t.Parallel()
	p := place{dsn: doortest.Postgres(t)}
	db := place{dsn: p.dsn + " idle_session_timeout=500ms"}.open(t, Options{Node: "host"})
	admin := p.open(t, Options{})
	idle, err := pgconn.Connect(t.Context(), p.dsn+" idle_session_timeout=1s")
	must(t, err)
	defer idle.Close(context.Background())
	const session = `SELECT count(*) FROM pg_stat_activity WHERE pid = ?1`
	await(t, "end of a later idle session", func() bool { return number(t, admin, session, int64(idle.PID())) == 0 })
	if number(t, admin, session, db.engine.(*postgres).backend) != 1 {
		t.Error("the session that holds the name has ended")
	}
}
