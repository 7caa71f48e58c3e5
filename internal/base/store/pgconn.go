package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Types of PostgreSQL, by the numbers that it has given them for good.
const (
	oidBool = 16
	oidByte = 17
	oidInt8 = 20
	oidInt2 = 21
	oidInt4 = 23
	oidText = 25
	oidFlo4 = 700
	oidFlo8 = 701
	oidNum  = 1700
	oidVoid = 2278
)

// errDSN says nothing of the string: an error of its parser may repeat a
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
	after := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, c *pgconn.PgConn) error {
		if after != nil {
			if err := after(ctx, c); err != nil {
				return err
			}
		}
		return settle(ctx, c, schema)
	}
	return config, nil
}

// errClear says what to do, and nothing of the connection string.
var errClear = errors.New("the connection string permits a connection to another host without TLS: add sslmode=verify-full")

// inTheClear reports whether a server on another host may be spoken to without
// TLS, as it may be by default: what is mail, and the password, would be read on
// the way. Unix sockets and loopback addresses stay on this host.
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

// settle makes a new connection what the store rests on, whatever the role or
// the database has set: a commit is on disk when it is answered, and a
// transaction whose daemon hangs does not hold its locks for ever.
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
	stmts cache[*pgStmt]
	next  int
	count *counters
	fresh bool // no transaction has been on it yet

	writer   int64     // its row of store_commits; 0: none yet
	number   int64     // of the transaction that it sealed last
	enlisted time.Time // when the row was made sure of; zero: to be done
}

type pgStmt struct {
	statement
	described *pgconn.StatementDescription
	formats   []int16 // of the columns
}

// connect opens a connection. Its error is text alone: the one of the driver
// holds the configuration, and with it the password.
func connect(ctx context.Context, config *pgconn.Config, count *counters) (*pgConn, error) {
	c, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: %s", ErrUnavailable, err.Error())
	}
	return &pgConn{c: c, count: count, fresh: true}, nil
}

// Close ends the connection, and does not wait long for a server that is gone.
func (c *pgConn) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return c.c.Close(ctx)
}

// limit sets the time until which the connection must answer; a slower answer
// fails and ends it.
func (c *pgConn) limit(d time.Duration) { _ = c.c.Conn().SetDeadline(time.Now().Add(d)) }

// unlimited takes the limit away.
func (c *pgConn) unlimited() { _ = c.c.Conn().SetDeadline(time.Time{}) }

// lost reports whether the connection is of no use any more.
func (c *pgConn) lost() bool { return c.c.IsClosed() }

// idle reports whether no transaction is on it.
func (c *pgConn) idle() bool { return !c.lost() && c.c.TxStatus() == 'I' }

// clock is the time of a transaction, which stands from its BEGIN on.
const clock = `SELECT CAST(floor(extract(epoch FROM transaction_timestamp()) * 1000) AS BIGINT)`

// begin also reads the clock, in the same round trip.
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

// stmt compiles a query once for this connection and these types.
func (c *pgConn) stmt(query string, args []any) (*pgStmt, error) {
	kinds := make([]byte, len(args), len(args)+1+len(query))
	oids := make([]uint32, len(args))
	for i, a := range args {
		kinds[i], oids[i] = typeOf(a)
	}
	key := string(append(append(kinds, ' '), query...))
	if s, ok := c.stmts.get(key); ok {
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
	c.stmts.put(key, s, func(old *pgStmt) { _ = c.c.Deallocate(context.Background(), old.described.Name) })
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
	params, formats := encode(args)
	rr := c.c.ExecStatement(ctx, s.described, params, formats, s.formats)
	// A row's function that panics must leave a connection that can go on.
	defer rr.Close()
	var stopped error
	for stopped == nil && rr.NextRow() {
		stopped = decodeRow(rr, row)
	}
	tag, err := rr.Close()
	switch {
	case stopped != nil:
		return 0, stopped
	case err != nil && ctx.Err() != nil:
		return 0, ctx.Err() // which ended the connection too
	}
	return tag.RowsAffected(), pgError(err)
}

// typeOf is the type of a parameter, and a letter for it.
func typeOf(a any) (kind byte, oid uint32) {
	switch a.(type) {
	case int64:
		return 'i', oidInt8
	case float64:
		return 'f', oidFlo8
	case string:
		return 's', oidText
	case []byte:
		return 'b', oidByte
	}
	return 'n', 0 // NULL: what the statement needs there
}

func encode(args []any) (params [][]byte, formats []int16) {
	params, formats = make([][]byte, len(args)), make([]int16, len(args))
	for i, a := range args {
		formats[i] = 1
		switch a := a.(type) {
		case int64:
			params[i] = binary.BigEndian.AppendUint64(nil, uint64(a))
		case float64:
			params[i] = binary.BigEndian.AppendUint64(nil, math.Float64bits(a))
		case string:
			params[i] = []byte(a)
		case []byte:
			params[i] = a
		}
	}
	return params, formats
}

// formatOf asks for binary values where decode knows them.
func formatOf(oid uint32) int16 {
	switch oid {
	case oidBool, oidByte, oidInt2, oidInt4, oidInt8, oidFlo4, oidFlo8:
		return 1
	}
	return 0
}

func decodeRow(rr *pgconn.ResultReader, row func([]any) error) error {
	raw, fields := rr.Values(), rr.FieldDescriptions()
	values := make([]any, len(raw))
	for i, b := range raw {
		values[i] = decode(fields[i].DataTypeOID, b)
	}
	return row(values)
}

func decode(oid uint32, b []byte) any {
	if b == nil {
		return nil
	}
	switch oid {
	case oidBool:
		return int64(b[0])
	case oidByte:
		return append([]byte{}, b...)
	case oidInt2:
		return int64(int16(binary.BigEndian.Uint16(b)))
	case oidInt4:
		return int64(int32(binary.BigEndian.Uint32(b)))
	case oidInt8:
		return int64(binary.BigEndian.Uint64(b))
	case oidFlo4:
		return float64(math.Float32frombits(binary.BigEndian.Uint32(b)))
	case oidFlo8:
		return math.Float64frombits(binary.BigEndian.Uint64(b))
	case oidNum: // such as sum()
		if n, err := strconv.ParseInt(string(b), 10, 64); err == nil {
			return n
		}
		if f, err := strconv.ParseFloat(string(b), 64); err == nil {
			return f
		}
	case oidVoid:
		return nil
	}
	return string(b)
}

// retryable is err as one after which the whole job runs again: a
// serialization failure or a deadlock.
func retryable(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		if pg.Code == "40001" || pg.Code == "40P01" {
			return &retryError{err}
		}
	}
	return nil
}

// pgError marks what is the database's trouble and not the statement's.
func pgError(err error) error {
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &pg):
		return fmt.Errorf("%w: %w", ErrUnavailable, err) // the connection
	case pg.SeverityUnlocalized == "FATAL", pg.Code == "25006", pg.Code == "57014":
		// The connection was ended, the server only reads (it is a standby by
		// now), or somebody cancelled the statement.
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	switch pg.Code[:2] {
	case "08", "53", "57", "58", "XX", "28":
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// CheckPostgres tells whether a connection string is one that Open takes, without
// connecting. Its error repeats nothing of the string.
func CheckPostgres(dsn string) error {
	_, err := parseDSN(dsn, "")
	return err
}
