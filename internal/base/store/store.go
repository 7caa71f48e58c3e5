// Package store keeps what must survive the daemon: an embedded SQLite
// database, or PostgreSQL where several daemons share one.
//
// It exists so that there is one SQL path. Statements are written once, with
// numbered placeholders (?1), in the common ground of both engines; what
// differs is translated in dialect.go, and values.go gives both engines the
// same types.
//
// Invariants: Write returns nil only when what the job did is on disk, synced,
// and what it noted was recorded before (Options.Record). A job that fails
// leaves nothing. Jobs of one database never see half of each other.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Engines, as DB.Engine says them.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
)

var (
	// ErrUnavailable is wrapped by errors of a database that cannot be reached,
	// is full, or failed: nothing was done, and trying later may help.
	ErrUnavailable = errors.New("the store is unavailable")
	// ErrUncertain is wrapped, with ErrUnavailable, where the outcome of a COMMIT is
	// unknown: the connection to PostgreSQL was lost during it, and the database
	// could not be asked in the following seconds; or SQLite's COMMIT failed with an
	// I/O error or in the driver.
	ErrUncertain = errors.New("it is not known whether it was committed")
	// ErrRecord is wrapped when Options.Record failed: nothing was done. On SQLite it
	// fails all jobs of the commit.
	ErrRecord = errors.New("the act could not be recorded")
	// ErrUnrecorded is returned by Act for a job that changed something and
	// noted nothing: nothing was done.
	ErrUnrecorded = fmt.Errorf("%w: the act makes no record", ErrRecord)
	// ErrNoRow is returned by Tx.Row when the statement gave no row.
	ErrNoRow = errors.New("no row")
	// ErrNewer: the database was made by a newer Doorward.
	ErrNewer = errors.New("the database was written by a newer version")
	// ErrLocked: another daemon uses the SQLite file.
	ErrLocked = errors.New("the database is in use by another daemon")
)

var errNoRecorder = errors.New("the store was opened without a recorder")

var errClosed = fmt.Errorf("%w: it is closed", ErrUnavailable)

// Migration is one step of the schema, forward only: one statement for each
// element of SQL, in SQLite's DDL for STRICT tables. BLOB, INTEGER, REAL, TEXT
// and STRICT are translated for PostgreSQL, and nothing else: no INTEGER
// PRIMARY KEY that counts by itself, no WITHOUT ROWID, no deferred constraint.
type Migration struct {
	// Name is that of the series, of a-z, 0-9, dash and underscore, and the
	// number there from 1 on without a gap: "mail-1". Neither it nor SQL is
	// ever changed once released; another step is added behind.
	Name string
	SQL  []string
}

// Options say what to open.
type Options struct {
	// Dir is the private directory that holds doorward.db; unused with
	// Postgres.
	Dir string
	// AnyFilesystem lets Dir be on a file system that is refused otherwise:
	// one of another machine, or of a program (FUSE). It is for tests that
	// bring their own file system; the database does not survive elsewhere.
	AnyFilesystem bool
	// Postgres is a connection string; empty: the embedded SQLite.
	Postgres string
	// Schema is the PostgreSQL schema to live in, made when it is not there;
	// empty: that of the connection.
	Schema string
	// Migrations are the series of all who live in the database, in any order
	// as long as each series is in its own.
	Migrations []Migration
	Log        *slog.Logger // nil: discards

	// Record is given what the jobs of one commit noted, in order, after all
	// of them have run and before the COMMIT. When it fails, nothing is
	// committed. It is not called when they noted nothing. Nil: a job that
	// notes something fails with ErrRecord.
	Record func(notes []any) error
	// Uncommitted is called with the same notes when Record succeeded and the
	// COMMIT did not, or may not have (ErrUncertain). nil: it is not called.
	Uncommitted func(notes []any, err error)

	Now func() time.Time // SQLite's clock; nil: time.Now

	filesystem func(dir string) (filesystem, error) // nil: the kernel's answer
}

// filesystem is what a directory is on. Where local is false, SQLite's locks
// and shared memory cannot be relied on.
type filesystem struct {
	name  string
	local bool
}

// DB is one open database. Its methods may be called at once.
type DB struct {
	engine engine
	hub    *hub
	count  *counters
}

// engine is what differs between SQLite and PostgreSQL.
type engine interface {
	name() string
	write(ctx context.Context, job func(*Tx) error) error
	read(ctx context.Context, job func(*Tx) error) error
	close() error
}

// Open opens the database and brings its schema up to date.
func Open(ctx context.Context, o Options) (*DB, error) {
	if err := checkMigrations(o.Migrations); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Record == nil {
		o.Record = func([]any) error { return errNoRecorder }
	}
	if o.Uncommitted == nil {
		o.Uncommitted = func([]any, error) {}
	}
	db := &DB{hub: newHub(), count: new(counters)}
	var err error
	if o.Postgres == "" {
		db.engine, err = openSQLite(ctx, o, db.hub, db.count)
	} else {
		db.engine, err = openPostgres(ctx, o, db.hub, db.count)
	}
	if err != nil {
		db.hub.close()
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	return db, nil
}

// Engine is SQLite or Postgres.
func (db *DB) Engine() string { return db.engine.name() }

// Close ends what is under way and closes the database.
func (db *DB) Close() error {
	err := db.engine.close()
	db.hub.close()
	return err
}

// Write runs job in a transaction and commits. The error of the job is
// returned as it is, and then nothing of it was done. The job may run more
// than once (PostgreSQL asks for that when it cannot serialize jobs) and must keep
// nothing from a run before; it must not call the database but through its Tx. It
// runs on the caller's goroutine, so a panic is the caller's. When ctx ends before
// the job has begun it is not run, and the error is that of ctx; once it runs, it is
// carried to its end.
//
// A statement that fails makes the job fail, also when the job returns nil. The
// other errors are those of the database:
//
//   - ErrUnavailable: nothing was done. On SQLite jobs that come together share a
//     commit, so the cause can be another job of the group.
//   - ErrUncertain, with ErrUnavailable: the job is done or it is not.
//   - ErrRecord: Options.Record refused, and nothing was done.
//
// Options.Record comes before the COMMIT, so a record may exist of a job that
// failed with ErrUnavailable, and several of one that ran again. Options.Uncommitted
// is told of each.
func (db *DB) Write(ctx context.Context, job func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return db.engine.write(ctx, job)
}

// Act is Write, with its errors, for what a caller does. A job that changes a row has to
// note what it does (Tx.Note): it fails with ErrUnrecorded otherwise, which wraps
// ErrRecord, and nothing was done. A row counts as changed when a statement wrote it,
// whatever it held before. A job that changes nothing needs no note.
func (db *DB) Act(ctx context.Context, job func(*Tx) error) error {
	return db.Write(ctx, func(tx *Tx) error {
		if err := job(tx); err != nil {
			return err
		}
		if tx.unaccounted() {
			return ErrUnrecorded
		}
		return nil
	})
}

// Read runs job on a consistent view of the database. It may not write. When
// ctx ends, so does the statement that is running.
func (db *DB) Read(ctx context.Context, job func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return db.engine.read(ctx, job)
}

// Listen has fn called with the topic of every Tx.Signal that was committed,
// by this daemon or another on the same database, soon after the commit. A
// topic that is signalled again before fn was called is not repeated. The
// empty topic says that some may have been missed: look at everything; on
// PostgreSQL it comes every few seconds. Calls come one at a time, from one
// goroutine for all listeners; fn must not block. After stop no call begins.
func (db *DB) Listen(fn func(topic string)) (stop func()) { return db.hub.listen(fn) }

// Stats are counts since Open, for metrics.
type Stats struct {
	Jobs     int64 // of Write that were committed
	Commits  int64 // fewer than Jobs where SQLite joined them
	Retries  int64 // of jobs that PostgreSQL asked to run again
	Compiled int64 // statements; stands still once all have been seen
}

// Stats returns the counts.
func (db *DB) Stats() Stats { return db.count.stats() }
