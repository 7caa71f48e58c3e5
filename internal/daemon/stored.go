package daemon

import (
	"context"
	"slices"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/messaging/mail"
)

// openStored starts what lives in the store: messaging, and the delivery of
// instructions. Without a database everything else runs, and it is tried again:
// a server comes back, a disk has room again, and a file is put right.
func (d *Daemon) openStored() error {
	ctx, stop := context.WithCancel(context.Background())
	d.onClose(stop)
	if err := d.startStored(ctx); err != nil {
		d.noStore(err)
		go again(ctx, func() bool { return d.haveStored(ctx) })
	}
	d.relay.SetServers(d.withBuiltins(d.servers.relay))
	d.instructing.server.Again() // nobody listens yet
	return nil
}

func (d *Daemon) noStore(err error) {
	reason := "its database cannot be used: " + err.Error()
	d.instructing.server.Lacks(reason)
	if was := d.storeless.Swap(&reason); was == nil || *was != reason {
		d.log.Error("messaging and instructions are off until their database can be used", "err", err)
	}
}

// retryTime is the pause between two attempts to reach the database.
const retryTime = 5 * time.Second

// again does something until it is done, or ctx ends.
func again(ctx context.Context, done func() bool) {
	tick := time.NewTicker(retryTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if done() {
			return
		}
	}
}

// haveStored is one more attempt to start what lives in the store.
func (d *Daemon) haveStored(ctx context.Context) bool {
	if err := d.startStored(ctx); err != nil {
		d.noStore(err)
		return false
	}
	d.storeless.Store(nil)
	d.reset()
	d.log.Info("the database can be used: messaging is on, and so are instructions")
	return true
}

// reset gives the relay the current servers, and tells all listening clients to
// list again.
func (d *Daemon) reset() {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	d.relay.SetServers(d.withBuiltins(d.servers.relay))
	d.relay.Announce()
	d.instructing.server.Again()
}

// startStored opens the store and starts the parts that need it. When one part
// fails, the parts that were opened are closed again.
func (d *Daemon) startStored(ctx context.Context) (err error) {
	if err := d.places.check(); err != nil {
		return err
	}
	undo := new(undoing)
	defer func() {
		if err != nil {
			undo.all()
		}
	}()
	db, err := openStore(ctx, d.o, store.Options{Log: d.log, Record: recorder{d.gate, d.audit}.acts, Uncommitted: recorder{d.gate, d.audit}.uncommitted})
	if err != nil {
		return err
	}
	undo.add(func() {
		if err := db.Close(); err != nil {
			d.log.Error("closing the store", "err", err)
		}
	})
	end, err := d.checkpoints.keep(ctx, db)
	if err != nil {
		return err
	}
	undo.add(end)
	d.onClose(undo.all) // after the agents, which openSpawns has ended first
	if d.o.Config.Agent.Enabled {
		end, err := d.startMessaging(ctx, db)
		if err != nil {
			return err
		}
		undo.add(end)
	}
	d.instructing.start(ctx, db, undo)
	return nil
}

// openStore opens the database of one configuration, with all that lives in it.
func openStore(ctx context.Context, o Options, with store.Options) (*store.DB, error) {
	c := o.Config.Store
	with.Dir, with.Postgres, with.AnyFilesystem = o.StateDir, c.Postgres.Reveal(), c.AnyFilesystem
	with.Migrations = Migrations()
	return store.Open(ctx, with) // it says what it was doing
}

// Migrations are the steps of everything that lives in the daemon's database.
// Who opens one without all of them is told that it is of a newer version.
func Migrations() []store.Migration {
	return slices.Concat(mail.Migrations(), session.Migrations(), library.Migrations(), keptMigrations())
}
