package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	connections = 16               // to write and read; one more listens
	beginLimit  = 10 * time.Second // a server that takes longer to begin is given up
	jobLimit    = 30 * time.Second // and so is a transaction that takes longer
	retries     = 5                // of a job that PostgreSQL asks to run again
	fateLimit   = 10 * time.Second // how long the fate of a lost COMMIT is asked for
)

// postgres is the engine for several daemons. Each job is a transaction of its
// own: the server joins the syncs of concurrent commits by itself.
//
// It uses the protocol layer of pgx without database/sql: the type of a
// parameter is that of its argument, as it is with SQLite, and not one that the
// server guesses; and a connection can be told to end at a deadline.
type postgres struct {
	o      Options
	hub    *hub
	count  *counters
	config *pgconn.Config
	pool   *pool[*pgConn]
	// channel is the one of NOTIFY, self the mark of this process in its
	// payloads: what we signalled ourselves was heard without the server.
	channel, self string

	beginLimit, fateLimit time.Duration // the constants, but in tests

	cancel context.CancelFunc // ends the listener
	ended  sync.WaitGroup
	once   sync.Once
}

func openPostgres(ctx context.Context, o Options, h *hub, count *counters) (engine, error) {
	config, err := parseDSN(o.Postgres, o.Schema)
	if err != nil {
		return nil, err
	}
	p := &postgres{o: o, hub: h, count: count, config: config, self: rand.Text(), beginLimit: beginLimit, fateLimit: fateLimit}
	p.pool = newPool(connections, p.dial)
	if err := p.migrate(ctx); err != nil {
		return nil, errors.Join(err, p.pool.close())
	}
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.ended.Go(func() { p.listen(ctx) })
	p.ended.Go(func() { p.remind(ctx) })
	return p, nil
}

func (p *postgres) dial(ctx context.Context) (*pgConn, error) { return connect(ctx, p.config, p.count) }

func (p *postgres) name() string { return Postgres }

// begin takes a connection and begins on it. A pooled connection may have died
// since it was used last, and then the others have too; nothing has been done
// yet, so a new one is tried.
func (p *postgres) begin(ctx context.Context, begin func(context.Context, *pgConn) (now int64, err error)) (*pgConn, *Tx, error) {
	for {
		c, err := p.pool.get(ctx)
		if err != nil {
			return nil, nil, err
		}
		now, err := begin(ctx, c)
		if err == nil {
			c.limit(jobLimit)
			return c, &Tx{ctx: context.Background(), s: c, now: now}, nil
		}
		fresh := c.fresh
		p.pool.drop(c)
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case fresh:
			return nil, nil, unavailable(err)
		}
		p.pool.dropIdle()
	}
}

func (p *postgres) toRead(ctx context.Context, c *pgConn) (now int64, err error) {
	return c.begin(ctx, p.beginLimit, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
}

func (p *postgres) toWrite(ctx context.Context, c *pgConn) (now int64, err error) {
	if err := c.enlist(ctx, p.beginLimit); err != nil {
		return 0, err
	}
	return c.begin(ctx, p.beginLimit, "BEGIN ISOLATION LEVEL READ COMMITTED")
}

func (p *postgres) read(ctx context.Context, job func(*Tx) error) error {
	c, tx, err := p.begin(ctx, p.toRead)
	if err != nil {
		return err
	}
	tx.ctx, tx.readOnly = ctx, true
	defer func() {
		tx.over = true
		p.release(c)
	}()
	return tx.outcome(job(tx))
}

// write runs a job, and again when the server could not serialize it with
// others.
func (p *postgres) write(ctx context.Context, job func(*Tx) error) error {
	for try := 0; ; try++ {
		err := p.attempt(ctx, job)
		var again *retryError
		if !errors.As(err, &again) {
			return err
		}
		if try == retries {
			return fmt.Errorf("%w: after %d attempts: %w", ErrUnavailable, try+1, again.err)
		}
		p.count.retries.Add(1)
		ctx = context.WithoutCancel(ctx) // it has begun
		time.Sleep(time.Duration(mrand.Int64N(int64(time.Millisecond << (2 * try)))))
	}
}

// attempt runs a job once, on the caller's goroutine.
func (p *postgres) attempt(ctx context.Context, job func(*Tx) error) error {
	c, tx, err := p.begin(ctx, p.toWrite)
	if err != nil {
		return err
	}
	defer func() {
		// Also when the job panicked. Uncommitted changes are rolled back.
		tx.over = true
		if errors.Is(tx.failed, ErrUnavailable) {
			p.pool.drop(c) // another one may find a server that can
			return
		}
		p.release(c)
	}()
	err = tx.outcome(job(tx))
	if again := retryable(tx.failed); again != nil {
		return again
	}
	if err != nil {
		return err
	}
	return p.finish(c, tx)
}

// finish records, commits and signals, in this order.
func (p *postgres) finish(c *pgConn, tx *Tx) error {
	mark, err := c.seal(p.channel, p.self, tx.topics, tx.now)
	if again := retryable(err); again != nil {
		return again
	}
	if err != nil {
		return err
	}
	if len(tx.notes) > 0 {
		if err := p.o.Record(tx.notes); err != nil {
			return fmt.Errorf("%w: %w", ErrRecord, err)
		}
	}
	c.limit(jobLimit) // Record may have taken its time
	if err := c.commit(); err != nil {
		err = p.afterLoss(c, mark, err)
		if err != nil {
			p.o.Log.Error("the store could not commit", slog.Any("error", err))
			if len(tx.notes) > 0 {
				p.o.Uncommitted(tx.notes, err)
			}
			if again := retryable(err); again != nil {
				return again
			}
			return err
		}
	}
	p.count.commits.Add(1)
	p.count.jobs.Add(1)
	p.hub.publish(tx.topics...)
	return nil
}

// release ends what was not committed and gives the connection back.
func (p *postgres) release(c *pgConn) {
	if c.idle() || c.rollback() == nil {
		c.fresh = false
		p.pool.put(c)
		return
	}
	p.pool.drop(c)
}

// close waits for what is under way.
func (p *postgres) close() error {
	var err error
	p.once.Do(func() {
		p.cancel()
		p.ended.Wait()
		err = p.pool.close()
	})
	return err
}
