package main

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/test/doortest"
)

// A daemon whose database is being changed by another one, or hangs, starts without
// messaging and says so. It can be stopped, and has messaging as soon as the database is
// free.
func TestADaemonStartsWhileItsTablesAreChanged(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T) (d *mailDaemon, release func()) {
		t.Parallel()
		dsn := doortest.Postgres(t)
		other, err := pgconn.Connect(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		run := func(query string) {
			if _, err := other.Exec(t.Context(), query).ReadAll(); err != nil {
				t.Fatal(err)
			}
		}
		run(`BEGIN; SELECT pg_advisory_xact_lock(hashtext('doorward store'))`)
		d = startMail(t, "north", mailConfig("north", dsn, ""))
		if s := d.agentServer(); s.State != "refused" || !strings.Contains(s.Reason, "is still being opened") {
			t.Errorf("while the database is in use: %s: %s", s.State, s.Reason)
		}
		return d, func() { run(`ROLLBACK`) }
	}
	t.Run("stopped", func(t *testing.T) {
		d, release := start(t)
		d.stop()
		release()
	})
	t.Run("freed", func(t *testing.T) {
		d, release := start(t)
		release()
		var s admin.Server
		if !poll(mailSoon, func() bool { s = d.agentServer(); return s.State == "connected" }) {
			t.Errorf("when the database is free: %s: %s", s.State, s.Reason)
		}
		d.client("unix").mustOpen().register("planner")
	})
}
