package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// The name of a daemon is an advisory lock of the session that listens. It therefore ends
// with the daemon, also when that is killed.
const (
	// holdSettings bound the wait for the lock: the server may still be ending the session of
	// an earlier run. The server pings a silent daemon, whose machine may have failed.
	holdSettings = `SET lock_timeout = '1s'; SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3`
	holdName     = `SELECT pg_backend_pid(), pg_advisory_lock(hashtextextended(?1, 0))`
	// endFormer ends the session on which this daemon held the lock before it lost the
	// connection. The server may not have noticed the loss yet.
	endFormer = `SELECT pg_terminate_backend(pid, 1000) FROM pg_locks WHERE pid = ?2 AND locktype = 'advisory' AND granted
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
		p.taken.Store(true)
		return p.errNode()
	}
	if err == nil {
		p.taken.Store(false)
	}
	return err
}

func (p *postgres) errNode() error {
	return fmt.Errorf("%w, %q: give each daemon a name of its own (store.node)", ErrNode, p.o.Node)
}
