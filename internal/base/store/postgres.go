package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	connections = 16               // to write and read; one more listens
	beginLimit  = 10 * time.Second // time limit of a BEGIN
	jobLimit    = 30 * time.Second // time limit of a transaction, and again of its COMMIT
	retries     = 5                // of a job that PostgreSQL could not serialize
	fateLimit   = 10 * time.Second // time limit for finding the outcome of a lost COMMIT
)

// postgres is the engine for several daemons. Each job is a transaction of its
// own: the server groups the syncs of concurrent commits.
//
// It uses the protocol layer of pgx without database/sql: the type of a
// parameter is then that of its argument, as with SQLite, and not one that the
// server infers; and a connection can have a deadline.
type postgres struct {
	o      Options
	hub    *hub
	count  *counters
	config *pgconn.Config
	pool   *pool[*pgConn]
	// channel is that of NOTIFY. self is a random prefix of the payloads of this process,
	// whose own signals are delivered without the server.
	channel, self string
	backend       int64        // process of the server that holds the name of this daemon; 0: none yet
	taken         atomic.Bool  // another daemon has the name, after a lost connection
	holder        atomic.Int64 // the process of the server that holds the name for another daemon; 0: unknown

	beginLimit, fateLimit time.Duration // the constants, except in tests

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
	if o.AsIs {
		p.cancel = func() {}
		return p, nil
	}
	if err := p.migrate(ctx); err != nil {
		return nil, errors.Join(err, p.pool.close())
	}
	var first *pgConn
	if o.Node != "" {
		if first, err = p.tune(ctx); err != nil {
			return nil, errors.Join(err, p.pool.close())
		}
	}
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.ended.Go(func() { p.listen(ctx, first) })
	p.ended.Go(func() { p.remind(ctx) })
	return p, nil
}

func (p *postgres) dial(ctx context.Context) (*pgConn, error) { return connect(ctx, p.config, p.count) }

func (p *postgres) name() string { return Postgres }

// begin takes a connection and begins a transaction on it. If that fails on a pooled
// connection, all idle connections are probably lost. begin drops them and tries a new
// one, because nothing has been done yet.
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

// write runs a job, and repeats it when the server could not serialize it with
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
		ctx = context.WithoutCancel(ctx) // the job has begun and is not interrupted any more
		time.Sleep(time.Duration(mrand.Int64N(int64(time.Millisecond << (2 * try)))))
	}
}

// attempt runs a job once, on the caller's goroutine.
func (p *postgres) attempt(ctx context.Context, job func(*Tx) error) error {
	if p.taken.Load() {
		return unavailable(p.errNode())
	}
	c, tx, err := p.begin(ctx, p.toWrite)
	if err != nil {
		return err
	}
	defer func() {
		// Also when the job panicked. Uncommitted changes are rolled back.
		tx.over = true
		if errors.Is(tx.failed, ErrUnavailable) {
			p.pool.drop(c) // a new connection may reach a server that works
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

// finish seals, records, commits and publishes the signals, in this order.
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
	c.limit(jobLimit) // Record may have used up the limit
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

// release rolls back what was not committed and returns the connection to the pool.
func (p *postgres) release(c *pgConn) {
	if c.idle() || c.rollback() == nil {
		c.fresh = false
		p.pool.put(c)
		return
	}
	p.pool.drop(c)
}

// close ends the listener, waits for running transactions and closes the connections.
func (p *postgres) close() error {
	var err error
	p.once.Do(func() {
		p.cancel()
		p.ended.Wait()
		err = p.pool.close()
	})
	return err
}
