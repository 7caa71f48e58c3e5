package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// sqliteConn is one connection with its compiled statements. It calls the driver
// without database/sql, which took about as long as SQLite did for the short
// statements of a message.
type sqliteConn struct {
	raw   *sqlite3.Conn
	stmts cache[*sqliteStmt]
	count *counters
	// broken is set when the driver has panicked: the state of the connection is
	// unknown then, and it can only be closed.
	broken error
}

type sqliteStmt struct {
	*sqlite3.Stmt
	statement
}

// openConn opens a connection to a database with a write-ahead log.
func openConn(ctx context.Context, path string, readOnly bool, count *counters) (*sqliteConn, error) {
	c, err := openRaw(ctx, path, readOnly, count)
	if err != nil {
		return nil, err
	}
	if err = c.checkMode(ctx, readOnly); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// openRaw opens a connection; read-only, also to a database without a write-ahead log, such as
// a backup.
func openRaw(ctx context.Context, path string, readOnly bool, count *counters) (*sqliteConn, error) {
	query := url.Values{"_pragma": pragmas, "mode": {"rw"}, "modeof": {path}}
	if readOnly {
		query.Set("mode", "ro")
		query["_pragma"] = readerPragmas
	}
	dsn := url.URL{Scheme: "file", Path: path, OmitHost: true, RawQuery: strings.ReplaceAll(query.Encode(), "+", "%20")} // SQLite knows no plus sign for a space
	c := &sqliteConn{count: count}
	err := c.guard(func() (err error) { c.raw, err = sqlite3.OpenContext(ctx, dsn.String()); return err })
	if err != nil {
		return nil, sqliteError(ctx, fmt.Errorf("opening %s: %w", path, err))
	}
	return c, nil
}

// checkMode checks the settings that durability and isolation depend on: on a file system
// without shared memory SQLite silently uses no write-ahead log.
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

// errDriver is wrapped by the error of a call in which the driver panicked.
var errDriver = fmt.Errorf("%w: the SQLite driver panicked", ErrUnavailable)

// guard runs a function that calls the driver and turns a panic into an error. The driver
// panics when SQLite is out of memory. The connection can then only be closed.
func (c *sqliteConn) guard(call func() error) error {
	if c.broken != nil {
		return c.broken
	}
	return c.try(call)
}

// try is guard for a function that closes something, which also runs on a broken
// connection. A statement that ran out of memory panics once more when it is closed, but
// is closed then.
func (c *sqliteConn) try(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.broken = fmt.Errorf("%w: %v", errDriver, p)
			err = c.broken
		}
	}()
	return call()
}

// Close ends the statements first: SQLite keeps the files and locks of a
// connection that still has one.
func (c *sqliteConn) Close() error {
	c.stmts.clear(c.end)
	return c.try(c.raw.Close)
}

// end gives up a statement.
func (c *sqliteConn) end(s *sqliteStmt) { _ = c.try(s.Close) }

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
	err = c.guard(func() (err error) { s.Stmt, err = c.compile(ctx, st.text); return err })
	if err != nil {
		return nil, sqliteError(ctx, err)
	}
	c.count.compiled.Add(1)
	c.stmts.put(query, s, c.end)
	return s, nil
}

var errOneStatement = errors.New("store: a query must be one statement")

func (c *sqliteConn) compile(ctx context.Context, text string) (*sqlite3.Stmt, error) {
	c.raw.SetInterrupt(ctx)
	s, tail, err := c.raw.Prepare(text)
	if err == nil && (s == nil || strings.TrimSpace(tail) != "") {
		err = errors.Join(errOneStatement, s.Close())
	}
	return s, err
}

// begin is what exec and query have in common: the compiled statement with its
// arguments.
func (c *sqliteConn) begin(ctx context.Context, query string, args []any) (*sqliteStmt, error) {
	s, err := c.stmt(ctx, query)
	if err == nil {
		err = s.check(args)
	}
	if err == nil {
		c.raw.SetInterrupt(ctx)
		err = c.guard(func() error { return s.bind(args) })
	}
	return s, sqliteError(ctx, err)
}

// bind gives the statement its arguments, which are of the types of values.go.
func (s *sqliteStmt) bind(args []any) (err error) {
	for i, a := range args {
		switch a := a.(type) {
		case int64:
			err = s.BindInt64(i+1, a)
		case float64:
			err = s.BindFloat(i+1, a)
		case string:
			err = s.BindText(i+1, a)
		case []byte:
			err = s.BindBlob(i+1, a)
		default:
			err = s.BindNull(i + 1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *sqliteConn) exec(ctx context.Context, query string, args []any) (n int64, err error) {
	s, err := c.begin(ctx, query, args)
	if err != nil {
		return 0, err
	}
	err = c.guard(func() error {
		err := s.Exec()
		n = c.raw.Changes()
		return errors.Join(err, s.ClearBindings())
	})
	return n, sqliteError(ctx, err)
}

// noBytes is what Columns leaves in the place of an empty BLOB.
var noBytes any = []byte{}

func (c *sqliteConn) query(ctx context.Context, query string, args []any, row func([]any) error) error {
	s, err := c.begin(ctx, query, args)
	if err != nil {
		return err
	}
	// Also when row panics, which is the caller's panic.
	defer func() { _ = c.try(func() error { return errors.Join(s.Reset(), s.ClearBindings()) }) }()
	var values []any
	for {
		more := false
		err := c.guard(func() error {
			if more = s.Step(); !more {
				return s.Err()
			}
			values = slices.Grow(values[:0], s.ColumnCount())[:s.ColumnCount()]
			for i := range values {
				values[i] = noBytes // and not the last row's, whose memory Columns would use again
			}
			return s.Columns(values...)
		})
		if err != nil || !more {
			return sqliteError(ctx, err)
		}
		if err := row(values); err != nil {
			return err
		}
	}
}

// inTransaction reports whether the transaction is still open: SQLite rolls it back
// after some failures.
func (c *sqliteConn) inTransaction() bool {
	on := false
	err := c.guard(func() error { on = !c.raw.GetAutocommit(); return nil })
	return err == nil && on
}

// owesKeys reports whether a deferred foreign key is violated, which would fail
// the COMMIT of the whole group.
func (c *sqliteConn) owesKeys() bool {
	var n int64
	err := c.guard(func() (err error) { n, _, err = c.raw.Status(sqlite3.DBSTATUS_DEFERRED_FKS, false); return err })
	return err != nil || n > 0
}

// sqliteError wraps err with ErrUnavailable if the database failed, and not the statement.
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
