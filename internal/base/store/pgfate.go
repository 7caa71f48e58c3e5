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

// A COMMIT whose answer was lost is looked up afterwards, but not by the number
// of its transaction: a server that crashed gives that number to the next one. A
// connection that writes therefore has a row of its own in store_commits, and the
// last statement of each of its transactions stores a number there. The row holds
// that number if and only if the transaction was committed, and is locked until
// that is settled.
const (
	// commitsTable leaves room in its pages, so that an update stays in its
	// page as a rule, and needs no vacuum.
	commitsTable = `CREATE TABLE IF NOT EXISTS store_commits (
		writer BIGINT PRIMARY KEY, number BIGINT NOT NULL, at BIGINT NOT NULL) WITH (fillfactor = 50)`
	// enlisting makes the row of a connection and removes rows that were not used
	// for long, whose connections are gone. The row of a connection in use is
	// locked, and skipped.
	enlisting = `WITH clock AS (SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT) AS now),
		gone AS (DELETE FROM store_commits WHERE writer IN (
			SELECT writer FROM store_commits, clock WHERE at < now - ?2 FOR UPDATE OF store_commits SKIP LOCKED))
		INSERT INTO store_commits (writer, number, at) SELECT ?1, 0, now FROM clock WHERE true
		ON CONFLICT (writer) DO UPDATE SET at = excluded.at`
	commitKept = time.Hour // unused; a transaction and the question for it are over in a minute or two
)

// enlist gives the connection its row before its first transaction, and again
// before another connection may take it for unused.
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

// sealing is the last statement of a transaction: one round trip for all signals.
// It makes no write transaction of one that only read.
const sealing = `WITH mark AS (UPDATE store_commits SET number = ?3, at = ?4
		WHERE writer = ?5 AND txid_current_if_assigned() IS NOT NULL RETURNING writer)
	SELECT txid_current_if_assigned() IS NOT NULL, (SELECT count(*) FROM mark), (SELECT count(*) FROM (
		SELECT pg_notify(?1, topic) FROM unnest(?2) AS topic OFFSET 0) AS sent)`

// sealed is what a transaction is known by after its end.
type sealed struct {
	wrote          bool
	writer, number int64 // of store_commits; 0 where the row was gone
}

// seal adds the signals and the mark to the transaction, whose time is now.
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
		c.enlisted = time.Time{} // the next one has a row again
	}
	return s, err
}

// afterLoss learns what became of a COMMIT whose answer did not come. It
// returns nil when it was done.
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

// errNoMark: the row is not there, as in a database that was restored from
// before it was made.
var errNoMark = errors.New("the connection's row is not there")

// committed reports whether the row of a connection holds the number of a
// transaction. It waits for the row, which a transaction that has not ended has
// locked, and which a server that only reads, and may be behind, does not give.
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
