package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/driver"
)

// sqliteConn is one connection with its compiled statements.
type sqliteConn struct {
	db    *sql.DB // of this connection alone
	c     *sql.Conn
	raw   *sqlite3.Conn
	stmts cache[*sqliteStmt]
	count *counters
	// broken: the driver panicked. database/sql then waits for ever for what
	// the panic did not give back, so nothing goes through it any more.
	broken error
}

type sqliteStmt struct {
	*sql.Stmt
	statement
}

func openConn(ctx context.Context, path string, readOnly bool, count *counters) (*sqliteConn, error) {
	// Text must stay text: the driver would otherwise turn what looks like a
	// time into one.
	query := url.Values{"_pragma": pragmas, "_timefmt": {"sqlite"}, "mode": {"rw"}, "modeof": {path}}
	if readOnly {
		query.Set("mode", "ro")
		query["_pragma"] = readerPragmas
	}
	dsn := url.URL{Scheme: "file", Path: path, OmitHost: true, RawQuery: strings.ReplaceAll(query.Encode(), "+", "%20")} // SQLite knows no plus sign for a space
	db, err := driver.Open(dsn.String())
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	c := &sqliteConn{db: db, count: count}
	err = c.guard(func() (err error) {
		if c.c, err = db.Conn(ctx); err != nil {
			return err
		}
		return c.c.Raw(func(dc any) error { c.raw = dc.(driver.Conn).Raw(); return nil })
	})
	if err != nil {
		return nil, errors.Join(sqliteError(ctx, fmt.Errorf("opening %s: %w", path, err)), db.Close())
	}
	if err = c.checkMode(ctx, readOnly); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// checkMode makes sure of what durability and isolation rest on: a file system
// without shared memory would silently leave the write-ahead log off.
func (c *sqliteConn) checkMode(ctx context.Context, readOnly bool) error {
	want := map[string]any{"journal_mode": "wal", "synchronous": int64(2), "foreign_keys": int64(1)}
	if readOnly {
		want = map[string]any{"journal_mode": "wal", "query_only": int64(1)}
	}
	for pragma, value := range want {
		var got any
		err := c.query(ctx, "PRAGMA "+pragma, nil, func(v []any) error { got = v[0]; return nil })
		if err == nil && got != value {
			err = fmt.Errorf("the database has %s %v instead of %v", pragma, got, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errDriver is wrapped when the driver panicked.
var errDriver = fmt.Errorf("%w: the driver of SQLite gave up", ErrUnavailable)

// guard runs what calls the driver, which panics where SQLite is out of memory.
// The connection is then of no use but to be closed.
func (c *sqliteConn) guard(call func() error) error {
	if c.broken != nil {
		return c.broken
	}
	return c.try(call)
}

// try is guard for what ends something: that is done on a broken connection
// too. A statement that failed for want of memory panics once more when it is
// ended, which it then is.
func (c *sqliteConn) try(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.broken = fmt.Errorf("%w: %v", errDriver, p)
			err = c.broken
		}
	}()
	return call()
}

// Close of a broken connection goes round database/sql, so that SQLite lets go
// of its files and locks.
func (c *sqliteConn) Close() error {
	c.stmts.clear(func(s *sqliteStmt) { _ = c.try(s.Close) })
	end := c.c.Close
	if c.broken != nil {
		end = c.raw.Close
	}
	return errors.Join(c.try(end), c.db.Close())
}

// stmt compiles a query once for this connection.
func (c *sqliteConn) stmt(ctx context.Context, query string) (*sqliteStmt, error) {
	if s, ok := c.stmts.get(query); ok {
		return s, nil
	}
	st, err := parse(query, "?")
	if err != nil {
		return nil, err
	}
	s := &sqliteStmt{statement: st}
	err = c.guard(func() (err error) { s.Stmt, err = c.c.PrepareContext(ctx, st.text); return err })
	if err != nil {
		return nil, sqliteError(ctx, err)
	}
	c.count.compiled.Add(1)
	c.stmts.put(query, s, func(old *sqliteStmt) { _ = c.try(old.Close) })
	return s, nil
}

func (c *sqliteConn) exec(ctx context.Context, query string, args []any) (n int64, err error) {
	s, err := c.stmt(ctx, query)
	if err == nil {
		err = s.check(args)
	}
	if err != nil {
		return 0, err
	}
	err = c.guard(func() error {
		res, err := s.ExecContext(ctx, args...)
		if err == nil {
			n, err = res.RowsAffected()
		}
		return err
	})
	return n, sqliteError(ctx, err)
}

func (c *sqliteConn) query(ctx context.Context, query string, args []any, row func([]any) error) error {
	s, err := c.stmt(ctx, query)
	if err == nil {
		err = s.check(args)
	}
	if err != nil {
		return err
	}
	var rows *sql.Rows
	var names []string
	err = c.guard(func() (err error) {
		if rows, err = s.QueryContext(ctx, args...); err == nil {
			names, err = rows.Columns()
		}
		return err
	})
	if rows != nil {
		// Also when row panics, which is the caller's panic, and when the
		// driver did: else the end of ctx would do so, on another goroutine.
		defer func() { _ = c.try(rows.Close) }()
	}
	if err != nil {
		return sqliteError(ctx, err)
	}
	return c.each(ctx, rows, len(names), row)
}

// each calls row outside of the guard.
func (c *sqliteConn) each(ctx context.Context, rows *sql.Rows, columns int, row func([]any) error) error {
	values, places := make([]any, columns), make([]any, columns)
	for i := range values {
		places[i] = &values[i]
	}
	for {
		more := false
		err := c.guard(func() error {
			if more = rows.Next(); more {
				return rows.Scan(places...)
			}
			return errors.Join(rows.Err(), rows.Close())
		})
		if err != nil || !more {
			return sqliteError(ctx, err)
		}
		if err := row(values); err != nil {
			return err
		}
	}
}

// inTransaction reports whether the transaction still stands: SQLite ends it
// by itself after some failures.
func (c *sqliteConn) inTransaction() bool {
	on := false
	err := c.guard(func() error { on = !c.raw.GetAutocommit(); return nil })
	return err == nil && on
}

// owesKeys reports whether a deferred foreign key is unmet, which would fail
// the COMMIT of all.
func (c *sqliteConn) owesKeys() bool {
	var n int64
	err := c.guard(func() (err error) { n, _, err = c.raw.Status(sqlite3.DBSTATUS_DEFERRED_FKS, false); return err })
	return err != nil || n > 0
}

// sqliteError marks what is the database's trouble and not the statement's.
func sqliteError(ctx context.Context, err error) error {
	var code sqlite3.ErrorCode
	if err == nil || !errors.As(err, &code) {
		return err
	}
	if code == sqlite3.INTERRUPT && ctx.Err() != nil {
		return ctx.Err()
	}
	switch code {
	case sqlite3.BUSY, sqlite3.LOCKED, sqlite3.NOMEM, sqlite3.READONLY, sqlite3.IOERR, sqlite3.CORRUPT, sqlite3.FULL,
		sqlite3.CANTOPEN, sqlite3.PROTOCOL, sqlite3.NOLFS, sqlite3.AUTH, sqlite3.PERM, sqlite3.NOTADB:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}
