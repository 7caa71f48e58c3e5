package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	remindEvery = 5 * time.Second  // time between empty topics, in case a signal was missed
	probeEvery  = 30 * time.Second // time without signals after which the server is pinged
	reconnect   = time.Second      // time between attempts to connect
)

// listen receives the signals of other daemons, on a connection of its own, until
// ctx ends. It connects again when the connection is lost. first is the connection; nil:
// there is none yet.
func (p *postgres) listen(ctx context.Context, first *pgConn) {
	if first != nil {
		defer first.Close() // ctx may have ended before it is used
	}
	for down := false; ctx.Err() == nil; pause(ctx, reconnect) {
		err := p.hear(ctx, first, func() {
			if down {
				p.o.Log.Info("signals of other daemons are received again")
			}
			down = false
			p.hub.publish("") // signals may have been missed meanwhile
		})
		first = nil
		if ctx.Err() == nil && !down {
			p.o.Log.Warn("signals of other daemons are not received; polling every few seconds", slog.Any("error", err))
			down = true
		}
	}
}

// tune opens the connection that receives signals and holds the name of this daemon.
func (p *postgres) tune(ctx context.Context) (*pgConn, error) {
	config := p.config.Copy()
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) {
		if !strings.HasPrefix(n.Payload, p.self) && len(n.Payload) >= len(p.self) {
			p.hub.publish(n.Payload[len(p.self):])
		}
	}
	c, err := connect(ctx, config, p.count)
	if err != nil {
		return nil, err
	}
	c.limit(p.beginLimit)
	if err := p.hold(ctx, c); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if _, err := c.c.Exec(ctx, `LISTEN `+quote(p.channel)).ReadAll(); err != nil {
		return nil, errors.Join(pgError(err), c.Close())
	}
	c.unlimited()
	return c, nil
}

// hear listens on one connection, c or a new one, until it is lost.
func (p *postgres) hear(ctx context.Context, c *pgConn, ready func()) error {
	if c == nil {
		var err error
		if c, err = p.tune(ctx); err != nil {
			return err
		}
	}
	defer c.Close()
	ready()
	for {
		wait, cancel := context.WithTimeout(ctx, probeEvery)
		err := c.c.WaitForNotification(wait)
		cancel()
		if err == nil {
			continue
		}
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		probe, cancel := context.WithTimeout(ctx, reconnect*5)
		err = c.c.Ping(probe)
		cancel()
		if err != nil {
			return err
		}
	}
}

// remind publishes the empty topic every remindEvery, so that listeners notice a change
// even if its signal was lost.
func (p *postgres) remind(ctx context.Context) {
	t := time.Tick(remindEvery)
	for {
		select {
		case <-ctx.Done():
			return
		case <-t:
			p.hub.publish("")
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// The name of a daemon is an advisory lock of the session that listens. It therefore ends
// with the daemon, also when that is killed.
const (
	// holdSettings bound the wait for the lock: the server may still be ending the session of
	// an earlier run. The server pings a silent daemon, whose machine may have failed. It does
	// not end the session because it is idle, which would free the name.
	holdSettings = `SET lock_timeout = '1s'; SET idle_session_timeout = 0; SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3`
	holdName     = `SELECT pg_backend_pid(), pg_advisory_lock(hashtextextended(?1, 0))`
	// endFormer ends the session on which this daemon held the lock before it lost the
	// connection. The server may not have noticed the loss yet.
	endFormer = `SELECT pg_terminate_backend(pid, 1000) FROM pg_locks WHERE pid = ?2 AND locktype = 'advisory' AND granted
		AND (CAST(classid AS BIGINT) << 32) | CAST(objid AS BIGINT) = hashtextextended(?1, 0)`
	// nameHolder finds the process of the server that holds the lock.
	nameHolder = `SELECT CAST(pid AS BIGINT) FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND (CAST(classid AS BIGINT) << 32) | CAST(objid AS BIGINT) = hashtextextended(?1, 0)`
)

// hold takes the name of this daemon for as long as c is open. If another daemon has it, it
// returns ErrNode, and nothing is written until hold has succeeded on a later connection.
func (p *postgres) hold(ctx context.Context, c *pgConn) error {
	if p.o.Node == "" {
		return nil
	}
	if _, err := c.c.Exec(ctx, holdSettings).ReadAll(); err != nil {
		return pgError(err)
	}
	name := p.channel + " " + p.o.Node // a channel is that of one schema
	if _, err := c.exec(ctx, endFormer, []any{name, p.backend}); err != nil {
		return err
	}
	err := c.query(ctx, holdName, []any{name}, func(v []any) error {
		p.backend, _ = v[0].(int64)
		return nil
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "55P03" {
		p.holder.Store(c.holderOf(ctx, name))
		p.taken.Store(true)
		return p.errNode()
	}
	if err == nil {
		p.taken.Store(false)
	}
	return err
}

// holderOf returns the process of the server that holds a name; 0: it is not known.
func (c *pgConn) holderOf(ctx context.Context, name string) (pid int64) {
	_ = c.query(ctx, nameHolder, []any{name}, func(v []any) error { // without an answer the error says less
		pid, _ = v[0].(int64)
		return nil
	})
	return pid
}

// errNode returns the error for a name that another session holds. It says how to end that session, because the
// session of a daemon that is gone is kept by the server until it notices the loss, or by a connection pooler.
func (p *postgres) errNode() error {
	err := fmt.Errorf("%w, %q: give each daemon a name of its own (store.node)", ErrNode, p.o.Node)
	if pid := p.holder.Load(); pid != 0 {
		err = fmt.Errorf("%w; if that daemon has ended, PostgreSQL or a connection pooler still keeps its session: restart the pooler, or run SELECT pg_terminate_backend(%d)", err, pid)
	}
	return err
}
