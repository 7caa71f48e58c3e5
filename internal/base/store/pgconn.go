package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// errDSN contains nothing of the string: an error of its parser may repeat a
// password.
var errDSN = errors.New("the PostgreSQL connection string cannot be read; write postgres://USER:PASSWORD@HOST/DATABASE?sslmode=verify-full")

func parseDSN(dsn, schema string) (*pgconn.Config, error) {
	if len(schema) > 63 {
		return nil, errors.New("the name of the PostgreSQL schema has more than 63 bytes")
	}
	config, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return nil, errDSN
	}
	if inTheClear(config) {
		return nil, errClear
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 10 * time.Second
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "doorward"
	}
	if config.ValidateConnect == nil && severalHosts(config) {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	after := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, c *pgconn.PgConn) error {
		if after != nil {
			if err := after(ctx, c); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(ctx, config.ConnectTimeout) // that of the connection is over
		defer cancel()
		return settle(ctx, c, schema)
	}
	return config, nil
}

// severalHosts reports whether a connection string names several servers. The one that accepts
// writes is then used: a standby accepts connections too, and what it says may be old.
func severalHosts(c *pgconn.Config) bool {
	return slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != c.Host || f.Port != c.Port })
}

// errClear contains nothing of the connection string either.
var errClear = errors.New("the connection string permits a connection to another host without TLS: add sslmode=verify-full")

// inTheClear reports whether the configuration permits a connection to another host without
// TLS, as it does by default. Messages and the password could be read on the network. Unix
// sockets and loopback addresses stay on this host.
func inTheClear(c *pgconn.Config) bool {
	clear := func(host string, secured bool) bool {
		ip, err := netip.ParseAddr(host)
		local := strings.HasPrefix(host, "/") || host == "localhost" || err == nil && ip.Unmap().IsLoopback()
		return !local && !secured
	}
	if clear(c.Host, c.TLSConfig != nil) {
		return true
	}
	return slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool { return clear(f.Host, f.TLSConfig != nil) })
}

// settle sets the parameters of a new connection that the store depends on, regardless of
// the defaults of role and database: a commit is on disk when it is answered, and a
// transaction of a daemon that hangs ends and releases its locks.
func settle(ctx context.Context, c *pgconn.PgConn, schema string) error {
	set := `SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
		SET client_encoding = 'UTF8';
		SET standard_conforming_strings = on;
		SET default_transaction_isolation = 'read committed';
		SET idle_in_transaction_session_timeout = '60s';`
	if schema != "" {
		set += `SET search_path = ` + quote(schema) + `, pg_temp;`
	}
	_, err := c.Exec(ctx, set).ReadAll()
	return err
}

// pgConn is one connection with its compiled statements.
type pgConn struct {
	c     *pgconn.PgConn
	types *pgtype.Map
	stmts cache[*pgStmt]
	next  int
	count *counters
	fresh bool // it has had no transaction yet

	writer   int64     // key of its row in store_commits; 0: none yet
	number   int64     // number of the transaction that it sealed last
	enlisted time.Time // when enlist last wrote the row; zero: enlist must write it
}

type pgStmt struct {
	statement
	described *pgconn.StatementDescription
	formats   []int16 // of the columns
}

// connect opens a connection. It returns the text of the driver's error, but does not wrap
// that error, which contains the configuration and thus the password.
func connect(ctx context.Context, config *pgconn.Config, count *counters) (*pgConn, error) {
	c, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: %s", ErrUnavailable, lastFirst(err.Error()))
	}
	return &pgConn{c: c, types: pgtype.NewMap(), count: count, fresh: true}, nil
}

// lastFirst puts the attempts of a failed connection, which the driver writes one a line, on
// one line. The last attempt has the cause: with the default sslmode the first one says only
// that the server has no TLS.
func lastFirst(text string) string {
	head, attempts, many := strings.Cut(text, "\n\t")
	if !many {
		return text
	}
	lines := slices.Compact(strings.Split(attempts, "\n\t"))
	slices.Reverse(lines)
	return head + " " + strings.Join(lines, "; before: ")
}

// Close ends the connection. It waits at most a second for a server that does not answer.
func (c *pgConn) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return c.c.Close(ctx)
}

// limit sets the time until which the connection must answer; a slower answer
// fails and ends it.
func (c *pgConn) limit(d time.Duration) { _ = c.c.Conn().SetDeadline(time.Now().Add(d)) }

// unlimited removes the limit.
func (c *pgConn) unlimited() { _ = c.c.Conn().SetDeadline(time.Time{}) }

// lost reports whether the connection is closed.
func (c *pgConn) lost() bool { return c.c.IsClosed() }

// idle reports whether the connection is open and has no transaction.
func (c *pgConn) idle() bool { return !c.lost() && c.c.TxStatus() == 'I' }

// clock reads the time of a transaction, which is that of its BEGIN.
const clock = `SELECT CAST(floor(extract(epoch FROM transaction_timestamp()) * 1000) AS BIGINT)`

// begin begins a transaction with the statement how, and reads its time in the same round trip.
func (c *pgConn) begin(ctx context.Context, limit time.Duration, how string) (now int64, err error) {
	c.limit(limit)
	batch := new(pgconn.Batch)
	for _, query := range []string{how, clock} {
		s, err := c.stmt(query, nil)
		if err != nil {
			return 0, err
		}
		batch.ExecPrepared(s.described.Name, nil, nil, nil)
	}
	results, err := c.c.ExecBatch(ctx, batch).ReadAll()
	if err != nil {
		return 0, err
	}
	if len(results) != 2 || len(results[1].Rows) != 1 {
		return 0, errors.New("BEGIN had no answer")
	}
	return strconv.ParseInt(string(results[1].Rows[0][0]), 10, 64)
}

func (c *pgConn) commit() error {
	results, err := c.c.Exec(context.Background(), "COMMIT").ReadAll()
	if err == nil && (len(results) != 1 || results[0].CommandTag.String() != "COMMIT") {
		err = errors.New("the server rolled back instead of committing")
	}
	return pgError(err)
}

func (c *pgConn) rollback() error {
	if c.lost() {
		return errClosed
	}
	_, err := c.c.Exec(context.Background(), "ROLLBACK").ReadAll()
	return err
}

// stmt returns the compiled query for the types of args. Each is compiled once for a connection.
func (c *pgConn) stmt(query string, args []any) (*pgStmt, error) {
	oids := make([]uint32, len(args))
	key := make([]byte, 0, 4*len(args)+len(query))
	for i, a := range args {
		if t, ok := c.types.TypeForValue(a); ok { // for NULL the server infers the type
			oids[i] = t.OID
		}
		key = binary.BigEndian.AppendUint32(key, oids[i])
	}
	key = append(key, query...)
	if s, ok := c.stmts.get(string(key)); ok {
		return s, nil
	}
	st, err := parse(query, "$")
	if err == nil {
		err = st.check(args)
	}
	if err != nil {
		return nil, err
	}
	c.next++
	described, err := c.c.Prepare(context.Background(), "s"+strconv.Itoa(c.next), st.text, oids)
	if err != nil {
		return nil, pgError(err)
	}
	c.count.compiled.Add(1)
	s := &pgStmt{statement: st, described: described}
	for _, f := range described.Fields {
		s.formats = append(s.formats, formatOf(f.DataTypeOID))
	}
	c.stmts.put(string(key), s, func(old *pgStmt) { _ = c.c.Deallocate(context.Background(), old.described.Name) })
	return s, nil
}

func (c *pgConn) exec(ctx context.Context, query string, args []any) (int64, error) {
	return c.run(ctx, query, args, func([]any) error { return nil })
}

func (c *pgConn) query(ctx context.Context, query string, args []any, row func([]any) error) error {
	_, err := c.run(ctx, query, args, row)
	return err
}

func (c *pgConn) run(ctx context.Context, query string, args []any, row func([]any) error) (int64, error) {
	s, err := c.stmt(query, args)
	if err != nil {
		return 0, err
	}
	params, err := c.encode(s, args)
	if err != nil {
		return 0, err
	}
	rr := c.c.ExecStatement(ctx, s.described, params, []int16{pgtype.BinaryFormatCode}, s.formats)
	// If row panics, the connection must stay usable.
	defer rr.Close()
	var stopped error
	for stopped == nil && rr.NextRow() {
		stopped = c.decodeRow(rr, row)
	}
	tag, err := rr.Close()
	switch {
	case stopped != nil:
		return 0, stopped
	case err != nil && ctx.Err() != nil:
		return 0, ctx.Err() // the end of ctx has closed the connection too
	}
	return tag.RowsAffected(), pgError(err)
}

func (c *pgConn) encode(s *pgStmt, args []any) (_ [][]byte, err error) {
	params := make([][]byte, len(args))
	for i, a := range args {
		// With a nil buffer an empty a would become NULL.
		params[i], err = c.types.Encode(s.described.ParamOIDs[i], pgtype.BinaryFormatCode, a, []byte{})
		if err != nil {
			return nil, err
		}
	}
	return params, nil
}

// formatOf returns binary for the types of values.go and text for all others.
func formatOf(oid uint32) int16 {
	switch oid {
	case pgtype.BoolOID, pgtype.ByteaOID, pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.Float4OID, pgtype.Float8OID:
		return pgtype.BinaryFormatCode
	}
	return pgtype.TextFormatCode
}

func (c *pgConn) decodeRow(rr *pgconn.ResultReader, row func([]any) error) (err error) {
	raw, fields := rr.Values(), rr.FieldDescriptions()
	values := make([]any, len(raw))
	for i, b := range raw {
		if values[i], err = c.decode(fields[i], b); err != nil {
			return err
		}
	}
	return row(values)
}

func (c *pgConn) decode(f pgconn.FieldDescription, b []byte) (any, error) {
	t, known := c.types.TypeForOID(f.DataTypeOID)
	switch {
	case b == nil:
		return nil, nil
	case known && f.Format == pgtype.BinaryFormatCode:
		v, err := t.Codec.DecodeDatabaseSQLValue(c.types, f.DataTypeOID, f.Format, b)
		if err != nil {
			return nil, err
		}
		return argument(v) // a boolean becomes 0 or 1
	case f.DataTypeOID == pgtype.NumericOID: // such as sum()
		if n, err := strconv.ParseInt(string(b), 10, 64); err == nil {
			return n, nil
		}
		if f, err := strconv.ParseFloat(string(b), 64); err == nil {
			return f, nil
		}
	}
	return string(b), nil
}

// retryError is an error after which the whole job must run again.
type retryError struct{ err error }

func (e *retryError) Error() string { return e.err.Error() }

// retryable returns err as a retryError if it is a serialization failure or a deadlock,
// and nil otherwise.
func retryable(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		if pg.Code == "40001" || pg.Code == "40P01" {
			return &retryError{err}
		}
	}
	return nil
}

// pgError wraps err with ErrUnavailable if the database failed, and not the statement. The
// statements are constant. Their failures are therefore those of the database, such as
// revoked rights, a missing table or a full disk, except those that depend on their values,
// and those after which the job is repeated.
func pgError(err error) error {
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &pg), pg.SeverityUnlocalized == "FATAL":
		return fmt.Errorf("%w: %w", ErrUnavailable, err) // the connection
	}
	switch pg.Code {
	case "42P05", "26000": // a prepared statement that another session has, or that this one lacks
		return fmt.Errorf("%w: %w: a connection pooler must keep a session for each client: set it to session pooling, or connect to the server directly", ErrUnavailable, err)
	}
	switch pg.Code[:min(2, len(pg.Code))] {
	case "", "21", "22", "23", "40": // values, constraints, serialization
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// CheckPostgres checks whether Open accepts a connection string, without
// connecting. Its error repeats nothing of the string.
func CheckPostgres(dsn string) error {
	_, err := parseDSN(dsn, "")
	return err
}
