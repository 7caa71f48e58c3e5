package store

import (
	"context"
	"errors"
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
// ctx ends. It connects again when the connection is lost.
func (p *postgres) listen(ctx context.Context) {
	for down := false; ctx.Err() == nil; pause(ctx, reconnect) {
		err := p.hear(ctx, func() {
			if down {
				p.o.Log.Info("signals of other daemons are received again")
			}
			down = false
			p.hub.publish("") // signals may have been missed meanwhile
		})
		if ctx.Err() == nil && !down {
			p.o.Log.Warn("signals of other daemons are not received; polling every few seconds", slog.Any("error", err))
			down = true
		}
	}
}

// hear listens on one connection until it is lost.
func (p *postgres) hear(ctx context.Context, ready func()) error {
	config := p.config.Copy()
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) {
		if !strings.HasPrefix(n.Payload, p.self) && len(n.Payload) >= len(p.self) {
			p.hub.publish(n.Payload[len(p.self):])
		}
	}
	c, err := connect(ctx, config, p.count)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.c.Exec(ctx, `LISTEN `+quote(p.channel)).ReadAll(); err != nil {
		return err
	}
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
