package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/doorward/doorward/test/doortest"
)

// A store keeps why its jobs fail until one shows that the database works again: a
// commit, and after a failed read also a read.
func TestTroubleLastsUntilTheDatabaseWorks(t *testing.T) {
	t.Parallel()
	full := fmt.Errorf("%w: the disk is full", ErrUnavailable)
	away := fmt.Errorf("%w: connection refused", ErrUnavailable)
	for name, c := range map[string]struct {
		outcomes func(*troubles)
		want     error
	}{
		"no job":                      {func(*troubles) {}, nil},
		"a failed write":              {func(t *troubles) { _ = t.write(full, false) }, full},
		"a failed read":               {func(t *troubles) { _ = t.read(away) }, away},
		"a write after both":          {func(t *troubles) { _ = t.read(away); _ = t.write(full, false); _ = t.write(nil, true) }, nil},
		"an empty write after both":   {func(t *troubles) { _ = t.read(away); _ = t.write(full, false); _ = t.write(nil, false) }, full},
		"an empty write after a read": {func(t *troubles) { _ = t.read(away); _ = t.write(nil, false) }, nil},
		"a read after a read":         {func(t *troubles) { _ = t.read(away); _ = t.read(nil) }, nil},
		"a job's own error":           {func(t *troubles) { _ = t.read(away); _ = t.read(errOdd) }, nil},
		"a read after a write":        {func(t *troubles) { _ = t.write(full, false); _ = t.read(nil) }, full},
		"a refused write after it":    {func(t *troubles) { _ = t.write(full, false); _ = t.write(errOdd, false) }, full},
		"a reader that did not wait": {func(t *troubles) {
			_ = t.read(away)
			_ = t.read(context.DeadlineExceeded)
		}, away},
		"the end of the store": {func(t *troubles) { _ = t.write(errClosed, false) }, nil},
	} {
		db := new(DB)
		c.outcomes(&db.troubles)
		if got := db.Trouble(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestTheTroubleOfAServerThatDiesAndComesBack(t *testing.T) {
	t.Parallel()
	server := doortest.PostgresServer(t)
	db := place{dsn: server.DSN()}.open(t, Options{})
	server.Kill(t)
	if err := db.Write(t.Context(), put("x", 1)); !errors.Is(db.Trouble(), ErrUnavailable) || err == nil {
		t.Errorf("a write without a server: %v, trouble %v", err, db.Trouble())
	}
	server.Start(t)
	must(t, db.Write(t.Context(), put("x", 1)))
	must(t, db.Trouble())
}

// A connection is tried with TLS first where the string permits both. The cause is in the
// last attempt, and a reader of a short text sees its beginning.
func TestTheCauseOfAFailedConnectionComesFirst(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"failed to connect to `user=a`: no such host":                                                  "failed to connect to `user=a`: no such host",
		"failed to connect to `user=a`:\n\tdb:5432: server refused TLS\n\tdb:5432: FATAL: no password": "failed to connect to `user=a`: db:5432: FATAL: no password; before: db:5432: server refused TLS",
		"failed to connect to `user=a`:\n\tdb:5432: refused\n\tdb:5432: refused":                       "failed to connect to `user=a`: db:5432: refused",
	} {
		if got := lastFirst(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	proxy, p := newProxy(t, doortest.Postgres(t))
	proxy.mode.Store("gone")
	p.dsn += " sslmode=prefer"
	if _, err := Open(t.Context(), p.options(Options{})); !errors.Is(err, ErrUnavailable) || strings.Contains(err.Error(), "\n") {
		t.Errorf("an error of several lines: %v", err)
	}
}

// A pooler that shares sessions between clients makes statements fail that are correct. The
// error names the setting. An error without a code is one of the statement.
func TestAPoolerThatSharesSessionsIsNamed(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"42P05", "26000"} {
		err := pgError(&pgconn.PgError{Code: code, Message: "prepared statement"})
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "session pooling") {
			t.Errorf("%s: %v", code, err)
		}
	}
	if err := pgError(&pgconn.PgError{Message: "odd"}); err == nil || errors.Is(err, ErrUnavailable) {
		t.Errorf("without a code: %v", err)
	}
}
