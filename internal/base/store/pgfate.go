package store

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// When the answer to a COMMIT is lost, the store checks afterwards whether it was done. It
// cannot use the number of the transaction: after a crash the server gives that number to
// the next one. A connection that writes therefore has a row of its own in store_commits,
// and the last statement of each of its transactions stores a new number there. The row
// holds that number if and only if the transaction was committed, and is locked until the
// transaction has ended.
const (
	// commitsTable leaves free space in its pages, so that an update usually stays in its
	// page and needs no vacuum.
	commitsTable = `CREATE TABLE IF NOT EXISTS store_commits (
		writer BIGINT PRIMARY KEY, number BIGINT NOT NULL, at BIGINT NOT NULL) WITH (fillfactor = 50)`
	// enlisting creates the row of a connection or renews its time, and removes rows that
	// were not used for commitKept, whose connections no longer exist. Rows that a
	// transaction has locked are skipped.
	enlisting = `WITH clock AS (SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT) AS now),
		gone AS (DELETE FROM store_commits WHERE writer IN (
			SELECT writer FROM store_commits, clock WHERE at < now - ?2 FOR UPDATE OF store_commits SKIP LOCKED))
		INSERT INTO store_commits (writer, number, at) SELECT ?1, 0, now FROM clock WHERE true
		ON CONFLICT (writer) DO UPDATE SET at = excluded.at`
	commitKept = time.Hour // much longer than a transaction and the check of its outcome take
)

// enlist creates the row of the connection before its first transaction, and renews it
// before another connection may remove it as unused.
func (c *pgConn) enlist(ctx context.Context, limit time.Duration) error {
	if !c.enlisted.IsZero() && time.Since(c.enlisted) < commitKept/2 {
		return nil
	}
	for c.writer == 0 {
		var b [8]byte
		_, _ = rand.Read(b[:])
		c.writer = int64(binary.BigEndian.Uint64(b[:]))
	}
	c.limit(limit)
	_, err := c.exec(ctx, enlisting, []any{c.writer, commitKept.Milliseconds()})
	if err != nil {
		return fmt.Errorf("entering the connection: %w", err)
	}
	c.enlisted = time.Now()
	return nil
}

// sealing is the last statement of a transaction. It stores the number and sends all
// signals in one round trip. It does not turn a transaction that has only read into one
// that writes.
const sealing = `WITH mark AS (UPDATE store_commits SET number = ?3, at = ?4
		WHERE writer = ?5 AND txid_current_if_assigned() IS NOT NULL RETURNING writer)
	SELECT txid_current_if_assigned() IS NOT NULL, (SELECT count(*) FROM mark), (SELECT count(*) FROM (
		SELECT pg_notify(?1, topic) FROM unnest(?2) AS topic OFFSET 0) AS sent)`

// sealed identifies a transaction after its end.
type sealed struct {
	wrote          bool
	writer, number int64 // row and number in store_commits; 0: the row did not exist
}

// seal executes sealing in the transaction, whose time is now.
func (c *pgConn) seal(channel, self string, topics []string, now int64) (s sealed, err error) {
	payloads := []string{}
	for _, topic := range topics {
		payloads = append(payloads, self+topic)
	}
	c.number++
	args := []any{channel, payloads, c.number, now, c.writer}
	err = c.query(context.Background(), sealing, args, func(v []any) error {
		s.wrote = v[0] == int64(1)
		if v[1] == int64(1) {
			s.writer, s.number = c.writer, c.number
		}
		return nil
	})
	if s.wrote && s.number == 0 {
		c.enlisted = time.Time{} // enlist creates the row before the next transaction
	}
	return s, err
}

// afterLoss determines the outcome of a COMMIT that returned err. It returns nil if the
// transaction was committed, err if it was not, and ErrUncertain if that cannot be found
// out within fateLimit.
func (p *postgres) afterLoss(c *pgConn, mark sealed, err error) error {
	if !c.lost() || !mark.wrote {
		return err // refused, or nothing was written
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.fateLimit)
	defer cancel()
	for mark.number != 0 && ctx.Err() == nil {
		done, ask := p.committed(ctx, mark)
		switch {
		case errors.Is(ask, errNoMark):
			mark.number = 0
		case ask != nil:
			pause(ctx, 100*time.Millisecond)
		case done:
			return nil
		default:
			return err
		}
	}
	return fmt.Errorf("%w: %w", ErrUncertain, unavailable(err))
}

// errNoMark means that the row does not exist, as in a database that was restored from a
// backup before the row was created.
var errNoMark = errors.New("the connection's row is missing")

// committed reports whether the row of a connection holds the number of a transaction. It
// waits for the lock of the row, which a transaction that has not ended holds. FOR UPDATE
// fails on a read-only server, whose data may be old.
func (p *postgres) committed(ctx context.Context, mark sealed) (bool, error) {
	c, err := p.dial(ctx)
	if err != nil {
		return false, err
	}
	defer c.Close()
	query := fmt.Sprintf(`BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = %d;
		SELECT number FROM store_commits WHERE writer = %d FOR UPDATE; ROLLBACK`, p.fateLimit.Milliseconds(), mark.writer)
	results, err := c.c.Exec(ctx, query).ReadAll()
	if err != nil {
		return false, err
	}
	return holds(results, mark.number)
}

func holds(results []*pgconn.Result, number int64) (bool, error) {
	if len(results) != 4 || len(results[2].Rows) != 1 {
		return false, errNoMark
	}
	held, err := strconv.ParseInt(string(results[2].Rows[0][0]), 10, 64)
	return held == number, err
}
