package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/driver"
)

const (
	fileName = "doorward.db"
	readers  = 4
)

// pragmas are not configurable. The two fullfsync ones matter on macOS alone.
var pragmas = []string{
	"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "fullfsync(1)", "checkpoint_fullfsync(1)",
	"foreign_keys(1)", "temp_store(MEMORY)", "journal_size_limit(67108864)", "cache_size(-1024)",
}

// A reader keeps few pages: those of the system's cache are near enough.
var readerPragmas = []string{"busy_timeout(10000)", "query_only(1)", "temp_store(MEMORY)", "cache_size(-512)"}

// sqlite is the embedded engine: one writer that joins commits, and a few
// connections that read.
type sqlite struct {
	writer  *writer
	readers *pool[*sqliteConn]
	lock    *os.File
	once    sync.Once
}

func openSQLite(ctx context.Context, o Options, h *hub, count *counters) (_ *sqlite, err error) {
	path, lock, err := claim(o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unlock(lock))
		}
	}()
	open := func(ctx context.Context) (*sqliteConn, error) {
		if err := ownFiles(path); err != nil {
			return nil, err
		}
		return openConn(ctx, path, false, count)
	}
	first, err := open(ctx)
	if err == nil {
		if err = migrateSQLite(ctx, first, path, o); err != nil {
			err = errors.Join(err, first.Close())
		}
	}
	if err != nil {
		return nil, err
	}
	e := &sqlite{lock: lock, writer: newWriter(o, first, open, h, count)}
	e.readers = newPool(readers, func(ctx context.Context) (*sqliteConn, error) { return openConn(ctx, path, true, count) })
	return e, nil
}

func (e *sqlite) name() string { return SQLite }

func (e *sqlite) write(ctx context.Context, job func(*Tx) error) error {
	return e.writer.write(ctx, job)
}

// read runs on a connection that cannot write. A deferred transaction keeps
// the view of its first statement.
func (e *sqlite) read(ctx context.Context, job func(*Tx) error) error {
	c, err := e.readers.get(ctx)
	if err != nil {
		return err
	}
	tx := &Tx{ctx: ctx, s: c, now: e.writer.now(), readOnly: true}
	defer func() {
		// Also when the job panicked: the connection is good all the same.
		tx.over = true
		if _, err := c.exec(context.Background(), "ROLLBACK", nil); err != nil {
			e.readers.drop(c)
			return
		}
		e.readers.put(c)
	}()
	if _, err := c.exec(context.Background(), "BEGIN DEFERRED", nil); err != nil {
		return unavailable(err)
	}
	return tx.outcome(job(tx))
}

// close waits for the group that is under way and for the readers. The last
// connection to go checkpoints the log and removes it.
func (e *sqlite) close() error {
	err := errClosed
	e.once.Do(func() {
		e.writer.stop()
		err = errors.Join(e.readers.close(), e.writer.close(), unlock(e.lock))
	})
	if errors.Is(err, errClosed) {
		return nil
	}
	return err
}

// sqliteConn is one connection with its compiled statements.
type sqliteConn struct {
	db    *sql.DB // of this connection alone
	c     *sql.Conn
	stmts cache[*sqliteStmt]
	count *counters
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
	if c.c, err = db.Conn(ctx); err != nil {
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

func (c *sqliteConn) Close() error {
	c.stmts.clear(func(s *sqliteStmt) { _ = s.Close() })
	return errors.Join(c.c.Close(), c.db.Close())
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
	prepared, err := c.c.PrepareContext(ctx, st.text)
	if err != nil {
		return nil, sqliteError(ctx, err)
	}
	c.count.compiled.Add(1)
	s := &sqliteStmt{prepared, st}
	c.stmts.put(query, s, func(old *sqliteStmt) { _ = old.Close() })
	return s, nil
}

func (c *sqliteConn) exec(ctx context.Context, query string, args []any) (int64, error) {
	s, err := c.stmt(ctx, query)
	if err == nil {
		err = s.check(args)
	}
	if err != nil {
		return 0, err
	}
	res, err := s.ExecContext(ctx, args...)
	if err != nil {
		return 0, sqliteError(ctx, err)
	}
	return res.RowsAffected()
}

func (c *sqliteConn) query(ctx context.Context, query string, args []any, row func([]any) error) error {
	s, err := c.stmt(ctx, query)
	if err == nil {
		err = s.check(args)
	}
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(ctx, args...)
	if err != nil {
		return sqliteError(ctx, err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return sqliteError(ctx, err)
	}
	values, places := make([]any, len(names)), make([]any, len(names))
	for i := range values {
		places[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(places...); err != nil {
			return sqliteError(ctx, err)
		}
		if err := row(values); err != nil {
			return err
		}
	}
	return sqliteError(ctx, errors.Join(rows.Err(), rows.Close()))
}

// inTransaction reports whether the transaction still stands: SQLite ends it
// by itself after some failures.
func (c *sqliteConn) inTransaction() bool {
	on := false
	err := c.c.Raw(func(dc any) error {
		on = !dc.(driver.Conn).Raw().GetAutocommit()
		return nil
	})
	return err == nil && on
}

// owesKeys reports whether a deferred foreign key is unmet, which would fail
// the COMMIT of all.
func (c *sqliteConn) owesKeys() bool {
	var n int64
	err := c.c.Raw(func(dc any) (err error) {
		n, _, err = dc.(driver.Conn).Raw().Status(sqlite3.DBSTATUS_DEFERRED_FKS, false)
		return err
	})
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

func dbPath(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	return filepath.Join(dir, fileName), err
}
