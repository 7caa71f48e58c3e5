package relay

import (
	"context"
	"errors"
	"time"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// Restart ends the open connections to all servers of a kind, and returns their
// number. For their callers the server has ended by itself: the next call opens
// another connection.
func (r *Relay) Restart(kind string) (ended int) {
	for _, b := range r.table.Load().sorted {
		if b.Kind == kind {
			ended += b.restart()
		}
	}
	return ended
}

// RestartServer ends the connections to one server, and with them its
// processes; they open again at the next need. found: there is such a server.
func (r *Relay) RestartServer(name string) (ended int, found bool) {
	b := r.table.Load().byName[name]
	if b == nil || b.Builtin != nil {
		return 0, false
	}
	return b.restart(), true
}

// ErrNoServer says that no server of that name is configured.
var ErrNoServer = errors.New("no such server")

// lookTime is how long a look at what a server offers may take.
const lookTime = 20 * time.Second

// Look asks a server for everything that it offers, to show what is withheld. A
// process that is withheld itself is not started.
func (r *Relay) Look(ctx context.Context, who *principal.Principal, server string) error {
	b := r.table.Load().byName[server]
	if b == nil {
		return ErrNoServer
	}
	if b.Pin == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	l := r.links.pooled(b, who, front.Modern)
	l.calls.Add(1)
	defer l.calls.Add(-1)
	c, err := l.get(ctx)
	if errors.Is(err, pin.ErrWithheld) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.offers.Look(ctx)
}
