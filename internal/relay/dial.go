package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/offer"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

const (
	// dialTime bounds the opening of a connection to a program. The upstream bounds the start
	// of a program itself.
	dialTime = 15 * time.Minute
	// netTime bounds the opening of a connection over the network.
	netTime = 90 * time.Second
)

// roomMaker makes room for a process that o needs, at b or, if b is nil, at any server. The
// process of another session gives way: gone is closed when it has ended. nil: none may give way.
type roomMaker func(o *owner, b *backend) (gone <-chan struct{})

// dialer opens the connections of one link.
type dialer struct {
	owner
	b     *backend
	meta  []byte                          // _meta of requests that Doorward makes itself
	asks  *questioner                     // decides on questions in the handshake
	event func(*liveConn, upstream.Event) // receives the server's messages outside of calls
	room  roomMaker
}

// connect tries the eras in turn, the clients' own first, so that messages are translated
// only where needed.
func (d *dialer) connect(ctx context.Context) (c *liveConn, err error) {
	defer func() { d.b.tried(ctx, err) }()
	if err := d.b.startable(); err != nil {
		return nil, fmt.Errorf("connecting to server %s: %w", d.b.Name, err)
	}
	release, err := d.reserve(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	defer d.b.alone(ctx)()
	d.pause(ctx)
	c, err = d.open(ctx)
	for errors.Is(err, upstream.ErrBusy) && d.makesRoom(ctx, nil) {
		c, err = d.open(ctx)
	}
	return c, err
}

// reserve counts the connection against the cap on instances. At the cap another session of
// the principal may have to give way.
func (d *dialer) reserve(ctx context.Context) (release func(), err error) {
	release, err = d.b.reserve()
	for err == failure.ErrInstances && d.makesRoom(ctx, d.b) {
		release, err = d.b.reserve()
	}
	return release, err
}

// makesRoom ends the process of another session at b, or at any server if b is nil. It reports
// whether there was one that could give way.
func (d *dialer) makesRoom(ctx context.Context, b *backend) bool {
	gone := d.room(&d.owner, b)
	if gone == nil {
		return false
	}
	select {
	case <-gone:
		return true
	case <-ctx.Done():
		return false
	}
}

// open opens the connection in one of the eras that the server may speak.
func (d *dialer) open(ctx context.Context) (*liveConn, error) {
	eras := d.b.eras(d.client)
	if d.b.Kind == upstream.KindStdio && d.b.Builtin == nil && len(eras) > 1 {
		c, err := d.connectEither(ctx, eras[0])
		return d.admit(c, err)
	}
	var last error
	for _, era := range eras {
		c, err := d.connectAs(ctx, era)
		if err == nil {
			return d.admit(c, nil)
		}
		last = err
		if !errors.Is(err, upstream.ErrEra) {
			break
		}
		d.b.lacks(era)
	}
	return nil, fmt.Errorf("connecting to server %s: %w", d.b.Name, last)
}

// admit registers an opened connection with its server.
func (d *dialer) admit(c *liveConn, err error) (*liveConn, error) {
	if err != nil {
		return nil, fmt.Errorf("connecting to server %s: %w", d.b.Name, err)
	}
	if !d.b.keep(c) {
		c.conn.Close()
		return nil, failure.ErrGone
	}
	d.b.spoken.Or(eraBit(c.era))
	d.b.owed.Started()
	c.offers = offer.New(offer.Options{Conn: c.conn, Era: c.era, Hello: c.hello, Meta: c.meta, Guard: d.b.Pin, Caps: rawjson.Get(d.init, "capabilities"),
		Table: &d.b.params, Learn: c.era == front.Modern || d.client == front.Modern})
	d.b.greeted.Store(c)
	return c, nil
}

// shortPause is the longest pause between a server's end and its next start that a call waits
// for: a crash costs the call in progress, but not the next one. During a longer pause the
// caller gets an error at once.
const shortPause = time.Second

func (d *dialer) pause(ctx context.Context) {
	if d.b.Builtin != nil {
		return
	}
	wait := d.b.Upstream.Pause(d.init)
	if wait <= 0 || wait > shortPause {
		return
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
}

// connectAs dials a server in one era.
func (d *dialer) connectAs(ctx context.Context, era front.Era) (*liveConn, error) {
	return d.dialWith(func(c *liveConn, on func(upstream.Event)) (err error) {
		c.era = era
		switch {
		case d.b.Builtin != nil:
			c.conn, c.hello = d.openBuiltin(era, on)
		case era == front.Modern:
			c.conn, c.hello, err = d.b.Upstream.DialModern(ctx, d.meta, on)
		default:
			c.conn, c.hello, err = d.b.Upstream.DialLegacy(ctx, d.init, on)
		}
		return err
	})
}

// connectEither starts a program whose era is not known, and notes the era that it lacks.
func (d *dialer) connectEither(ctx context.Context, first front.Era) (*liveConn, error) {
	return d.dialWith(func(c *liveConn, on func(upstream.Event)) error {
		conn, g, err := d.b.Upstream.DialEither(ctx, first == front.Modern, d.meta, d.init, on)
		if err != nil {
			return err
		}
		c.conn, c.hello, c.era = conn, g.Result, front.Legacy
		other := front.Modern
		if g.Modern {
			c.era, other = front.Modern, front.Legacy
		}
		if g.Only {
			d.b.lacks(other)
		}
		return nil
	})
}

// dialWith opens a connection with dial. Messages that the server sends before dial has
// returned wait.
func (d *dialer) dialWith(dial func(*liveConn, func(upstream.Event)) error) (*liveConn, error) {
	c := &liveConn{ready: make(chan struct{})}
	err := dial(c, func(e upstream.Event) {
		<-c.ready
		d.event(c, e)
	})
	if err != nil {
		return nil, err
	}
	if c.era == front.Modern {
		c.meta = d.meta
	}
	if wire.HoldsQuestions(c.hello) {
		if c.hello, err = d.asks.questions.embedded(d.asks.outsideCalls(), c.hello); err != nil {
			close(c.ready)
			c.conn.Close()
			return nil, err
		}
	}
	c.hello = d.b.greeting(c.hello)
	close(c.ready)
	return c, nil
}

// openBuiltin is connectAs for a server that is part of the daemon.
func (d *dialer) openBuiltin(era front.Era, on func(upstream.Event)) (upstream.Conn, []byte) {
	session := ""
	if d.session != nil {
		session = d.session.Digest
	}
	return d.b.Builtin.Open(d.who, session, era == front.Modern, on)
}
