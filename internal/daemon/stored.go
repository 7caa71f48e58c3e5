package daemon

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/messaging/mail"
)

// storedParts starts the parts of the daemon that need its database.
type storedParts struct{ d *Daemon }

// open starts messaging and the delivery of instructions. If the database cannot be used, or
// not soon, the rest of the daemon runs and open tries again in the background: a database
// server may return, or a disk be freed.
func (s storedParts) open() error {
	ctx, stop := context.WithCancel(context.Background())
	s.d.onClose(stop)
	first := make(chan error, 1)
	go func() { first <- s.start(ctx) }()
	later := func() {}
	select {
	case err := <-first:
		if err != nil {
			s.lacks(err)
			later = func() { again(ctx, func() bool { return s.retry(ctx) }) }
		}
	case <-time.After(openTime):
		s.lacks(errOpening)
		later = func() { s.await(ctx, first) }
	}
	s.d.relay.SetServers(s.d.withBuiltins(s.d.servers.relay))
	s.d.instructing.server.Again() // no client listens yet
	go later()                     // it sets the servers too
	return nil
}

// openTime is how long the start of the daemon waits for its database. Creating all tables
// takes less, even on a slow machine; systemd waits longer.
const openTime = 20 * time.Second

// errOpening is why a database cannot be used that is still being opened.
var errOpening = errors.New("it is still being opened: the server does not answer, or this or another daemon is bringing the tables up to date")

// await waits for the first attempt to start the parts, which may take long.
func (s storedParts) await(ctx context.Context, first <-chan error) {
	if err := <-first; err != nil {
		s.lacks(err)
		again(ctx, func() bool { return s.retry(ctx) })
		return
	}
	s.started()
}

// unusable introduces the reason why a built-in server cannot work.
const unusable = "its database cannot be used: "

func (s storedParts) lacks(err error) {
	reason := unusable + err.Error()
	s.d.instructing.server.Lacks(reason)
	if was := s.d.storeless.Swap(&reason); was == nil || *was != reason {
		s.d.log.Error("messaging and instructions are off until their database can be used", "err", err)
	}
}

// retryTime is the pause between two attempts to reach the database.
const retryTime = 5 * time.Second

// again calls done until it reports true, or ctx ends.
func again(ctx context.Context, done func() bool) {
	tick := time.Tick(retryTime)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		if done() {
			return
		}
	}
}

// retry tries once more to start the parts that need the database.
func (s storedParts) retry(ctx context.Context) bool {
	if err := s.start(ctx); err != nil {
		s.lacks(err)
		return false
	}
	s.started()
	return true
}

// started gives clients the parts that were started after the daemon.
func (s storedParts) started() {
	s.d.storeless.Store(nil)
	s.reset()
	s.d.log.Info("the database can be used again: messaging and instructions are on")
}

// reset gives the relay the current servers, and tells all listening clients to list again.
func (s storedParts) reset() {
	s.d.reloading.Lock()
	defer s.d.reloading.Unlock()
	s.d.relay.SetServers(s.d.withBuiltins(s.d.servers.relay))
	s.d.relay.Announce()
	s.d.instructing.server.Again()
}

// start opens the store and starts the parts that need it. When one part fails, the parts
// that were opened are closed again.
func (s storedParts) start(ctx context.Context) (err error) {
	if err := s.d.places.check(); err != nil {
		return err
	}
	undo := new(undoing)
	defer func() {
		if err != nil {
			undo.all()
		}
	}()
	db, err := openStore(ctx, s.d.o, store.Options{Log: s.d.log, Record: recorder{s.d.gate, s.d.audit}.acts, Uncommitted: recorder{s.d.gate, s.d.audit}.uncommitted})
	if err != nil {
		return err
	}
	undo.add(func() {
		if err := db.Close(); err != nil {
			s.d.log.Error("closing the store", "err", err)
		}
	})
	end, err := s.d.checkpoints.keep(ctx, db)
	if err != nil {
		return err
	}
	undo.add(end)
	if s.d.o.Config.Agent.Enabled {
		end, err := s.d.startMessaging(ctx, db)
		if err != nil {
			return err
		}
		undo.add(end)
	}
	s.d.database.Store(db)
	s.d.onClose(func() { // what fails before this is undone at once
		s.d.agents.close()
		undo.all()
	})
	s.d.instructing.start(ctx, db, undo)
	return nil
}

// openStore opens the database of one configuration, with the migrations of all its users, and
// under the name of its daemon, unless it is only read.
func openStore(ctx context.Context, o Options, with store.Options) (*store.DB, error) {
	c := o.Config.Store
	with.Dir, with.Postgres, with.AnyFilesystem = o.StateDir, c.Postgres.Reveal(), c.AnyFilesystem
	with.Migrations = Migrations()
	if !with.AsIs {
		with.Node = nodeName(o.Config)
	}
	return store.Open(ctx, with) // the error describes the step
}

// Migrations returns the migrations of all users of the daemon's database. A database that
// has more of them than the program counts as one of a newer version.
func Migrations() []store.Migration {
	return slices.Concat(mail.Migrations(), session.Migrations(), library.Migrations(), keptMigrations())
}
