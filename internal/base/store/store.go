// Package store keeps the data that must survive the daemon: in an embedded SQLite
// database, or in PostgreSQL if several daemons share one.
//
// Its reason is to have one SQL path. Statements are written once, with
// numbered placeholders (?1), in the common subset of both engines; the differences are
// translated in dialect.go, and values.go gives both engines the same types.
//
// Invariants: Write returns nil only when the changes of the job are on disk, synced,
// and its notes were recorded before (Options.Record). A job that fails
// changes nothing. A job never sees a part of another job's changes.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// Values of DB.Engine.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
)

var (
	// ErrUnavailable is wrapped by errors of a database that cannot be reached,
	// is full, or failed. Nothing was done, unless the error also wraps ErrUncertain. A
	// later attempt may succeed.
	ErrUnavailable = errors.New("the store is unavailable")
	// ErrUncertain is wrapped, with ErrUnavailable, if the outcome of a COMMIT is
	// unknown: the connection to PostgreSQL was lost during it, and the outcome could not
	// be read in the following seconds; or SQLite's COMMIT failed with an
	// I/O error or in the driver.
	ErrUncertain = errors.New("it is not known whether it was committed")
	// ErrRecord is wrapped when Options.Record failed: nothing was done. On SQLite all
	// jobs of the commit fail with it.
	ErrRecord = errors.New("the act could not be recorded")
	// ErrUnrecorded is returned by Act for a job that changed something and
	// noted nothing: nothing was done.
	ErrUnrecorded = fmt.Errorf("%w: the act has no record", ErrRecord)
	// ErrNoRow is returned by Tx.Row when the statement gave no row.
	ErrNoRow = errors.New("no row")
	// ErrNewer means that the schema has steps of a newer Doorward.
	ErrNewer = errors.New("the database was written by a newer version")
	// ErrLocked means that another daemon uses the SQLite file.
	ErrLocked = errors.New("the database is in use by another daemon")
	// ErrNode means that another daemon on the same PostgreSQL has the name of this one.
	ErrNode = errors.New("another daemon on this database has the same name")
)

var errNoRecorder = errors.New("the store was opened without a recorder")

var errAsIs = errors.New("the store was opened to read only")

var errClosed = fmt.Errorf("%w: it is closed", ErrUnavailable)

// Migration is one step of the schema, forward only: one statement for each
// element of SQL, in SQLite's DDL for STRICT tables. Only BLOB, INTEGER, REAL, TEXT
// and STRICT are translated for PostgreSQL: no auto-incrementing INTEGER
// PRIMARY KEY, no WITHOUT ROWID, no deferred constraint.
type Migration struct {
	// Name is the name of the series, of a-z, 0-9, dash and underscore, with the number
	// of the step, from 1 on without a gap: "mail-1". Neither Name nor SQL is
	// changed after a release; another step is added instead.
	Name string
	SQL  []string
}

// Options configures Open.
type Options struct {
	// Dir is the private directory that holds doorward.db; unused with
	// Postgres.
	Dir string
	// AnyFilesystem permits a Dir on a file system that is otherwise refused:
	// a remote one, or one served by a program (FUSE). It is for tests with a file
	// system of their own; any other use risks the database.
	AnyFilesystem bool
	// Postgres is a connection string; empty: the embedded SQLite.
	Postgres string
	// Schema is the PostgreSQL schema of the tables, created if it does not exist;
	// empty: that of the connection.
	Schema string
	// Node is the name of this daemon among those that share a PostgreSQL. One DB at a time has
	// it: Open fails with ErrNode while another one does. Empty: this one has no name.
	Node string
	// Migrations holds the series of all packages that use the database. The steps of
	// each series are in order; the series may be in any order.
	Migrations []Migration
	// AsIs opens the database to read only, and makes and changes no table. Lacks names the
	// steps that its schema lacks.
	AsIs bool
	Log  *slog.Logger // nil: discards

	// Record is called with the notes of the jobs of one commit, in order, after all
	// of them have run and before the COMMIT. If it fails, nothing is
	// committed. It is not called without notes. nil: a job with
	// notes fails with ErrRecord.
	Record func(notes []any) error
	// Uncommitted is called with the same notes when Record has succeeded and the
	// COMMIT has failed, or may have failed (ErrUncertain). nil: it is not called.
	Uncommitted func(notes []any, err error)

	Now func() time.Time // SQLite's clock; nil: time.Now

	filesystem func(dir string) (filesystem, error) // nil: the kernel's answer
}

// filesystem is the file system of a directory. If it is not local, SQLite's locks
// and shared memory cannot be relied on.
type filesystem struct {
	name  string
	local bool
}

// DB is one open database. Its methods may be called concurrently.
type DB struct {
	engine   engine
	hub      *hub
	count    *counters
	troubles troubles
	ctx      context.Context // ends with Close
	end      context.CancelFunc
	asIs     bool
	lacks    []string
}

// engine is one of the two databases, SQLite or PostgreSQL.
type engine interface {
	name() string
	write(ctx context.Context, job func(*Tx) error) error
	read(ctx context.Context, job func(*Tx) error) error
	close() error
}

// Open opens the database and brings its schema up to date (Options.AsIs: it does not).
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
	db := &DB{hub: newHub(), count: new(counters), asIs: o.AsIs}
	db.ctx, db.end = context.WithCancel(context.Background())
	var err error
	if o.Postgres == "" {
		db.engine, err = openSQLite(ctx, o, db.hub, db.count)
	} else {
		db.engine, err = openPostgres(ctx, o, db.hub, db.count)
	}
	if err == nil && o.AsIs {
		if err = db.survey(ctx, o.Migrations); err != nil {
			err = errors.Join(err, db.engine.close())
		}
	}
	if err != nil {
		db.end()
		db.hub.close()
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	return db, nil
}

// Engine returns SQLite or Postgres.
func (db *DB) Engine() string { return db.engine.name() }

// Close waits for running jobs and closes the database.
func (db *DB) Close() error {
	db.end()
	err := db.engine.close()
	db.hub.close()
	return err
}

// Write runs job in a transaction and commits. An error of the job is
// returned unchanged, and then nothing was changed. The job may run more
// than once (PostgreSQL requires that when it cannot serialize jobs) and must keep
// nothing from an earlier run. It must call the database only through its Tx. It
// runs on the caller's goroutine, so a panic is the caller's. If ctx ends before
// the job has begun, the job is not run, and the error is that of ctx; a job that has
// begun is not interrupted.
//
// A statement that fails makes the job fail, even if the job returns nil. The
// other errors are those of the database:
//
//   - ErrUnavailable: nothing was done. On SQLite concurrent jobs share a
//     commit, so the cause can be another job of the group.
//   - ErrUncertain, with ErrUnavailable: the job was done or not done.
//   - ErrRecord: Options.Record failed, and nothing was done.
//
// Options.Record is called before the COMMIT, so there may be a record of a job that
// failed with ErrUnavailable, and several records of a job that ran again.
// Options.Uncommitted is called for each of them.
func (db *DB) Write(ctx context.Context, job func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if db.asIs {
		return errAsIs
	}
	changed := false
	err := db.engine.write(ctx, func(tx *Tx) error {
		err := job(tx)
		changed = tx.changed
		return err
	})
	if db.troubles.write(err, changed) {
		go db.retry()
	}
	return err
}

// Act is Write, with its errors, for the act of a caller. A job that changes a row must
// note its act (Tx.Note); otherwise it fails with ErrUnrecorded, which wraps
// ErrRecord, and nothing was done. A row counts as changed when a statement wrote it,
// even with the same values. A job that changes nothing needs no note.
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

// Read runs job on a consistent view of the database. The job must not write. The end of
// ctx ends the running statement.
func (db *DB) Read(ctx context.Context, job func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return db.troubles.read(db.engine.read(ctx, job))
}

// Listen registers fn, which is called with the topic of every committed Tx.Signal
// of this daemon or another one on the same database, soon after the commit. A
// topic that is signalled again before fn was called is not repeated. The
// empty topic means that signals may have been missed, so that fn must check everything;
// on PostgreSQL it is published every few seconds, on SQLite after a commit with
// ErrUncertain. One goroutine calls all listeners, one at a time; fn must not block. After
// stop no call begins.
func (db *DB) Listen(fn func(topic string)) (stop func()) { return db.hub.listen(fn) }

// Stats are counts since Open, for metrics.
type Stats struct {
	Jobs     int64 // committed jobs of Write
	Commits  int64 // fewer than Jobs if SQLite has grouped jobs
	Retries  int64 // repeated runs of jobs that PostgreSQL could not serialize
	Compiled int64 // compiled statements; constant once every statement was used
}

// Stats returns the counts.
func (db *DB) Stats() Stats { return db.count.stats() }

// hasApplied counts the tables of the applied steps: one, or none in a new database.
var hasApplied = map[string]string{
	SQLite:   `SELECT count(*) FROM sqlite_schema WHERE name = 'store_migrations'`,
	Postgres: `SELECT count(*) FROM pg_catalog.pg_class WHERE oid = to_regclass('store_migrations')`,
}

// survey finds the steps that the schema lacks, without changing it.
func (db *DB) survey(ctx context.Context, all []Migration) error {
	return db.Read(ctx, func(tx *Tx) error {
		var done []string
		var tables int64
		err := tx.Row([]any{&tables}, hasApplied[db.Engine()])
		if err == nil && tables > 0 {
			done, err = names(ctx, tx.s)
		}
		if err != nil {
			return fmt.Errorf("reading the migrations: %w", err)
		}
		steps, err := pending(all, done)
		db.lacks = stepNames(steps)
		return err
	})
}

// Lacks returns the steps that the schema of a database lacks that was opened as it is. It is
// one of an older version, or new.
func (db *DB) Lacks() []string { return db.lacks }

// troubles keeps why the last jobs failed because of the database. A database may serve
// reads while it accepts no writes: a full disk, a standby.
type troubles struct {
	reads, writes atomic.Pointer[error] // nil: the last ones did not fail
	retrying      atomic.Bool           // DB.retry runs
}

// read takes the outcome of a job that reads. An error of the job itself shows that the
// database works.
func (t *troubles) read(err error) error {
	if failed(err) {
		why := err // so that only a failure allocates
		t.reads.Store(&why)
	} else if !interrupted(err) {
		t.reads.Store(nil)
	}
	return err
}

// write takes the outcome of a job that may write. Only the commit of a changed row shows
// that the database accepts writes; any other commit is one of a job that reads. retry: the
// caller has to start DB.retry.
func (t *troubles) write(err error, changed bool) (retry bool) {
	switch {
	case failed(err):
		why := err
		t.writes.Store(&why)
		return t.retrying.CompareAndSwap(false, true)
	case err == nil:
		t.reads.Store(nil)
		if changed {
			t.writes.Store(nil)
		}
	}
	return false
}

// failed reports whether err is a failure of an open database.
func failed(err error) bool { return errors.Is(err, ErrUnavailable) && !errors.Is(err, errClosed) }

// interrupted reports whether the caller of a job did not wait for it, which says nothing
// about the database.
func interrupted(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errClosed)
}

// persist reports whether retry has to go on. A failure that occurs while retry ends makes it go on.
func (t *troubles) persist() bool {
	if t.writes.Load() != nil {
		return true
	}
	t.retrying.Store(false)
	return t.writes.Load() != nil && t.retrying.CompareAndSwap(false, true)
}

// retryEvery is how soon a database that accepted no write is tried again.
const retryEvery = 10 * time.Second

// retry writes a row, with the values that it has, until the database accepts a write, so
// that Trouble ends with its cause even if no caller writes.
func (db *DB) retry() {
	for db.troubles.persist() {
		select {
		case <-db.ctx.Done():
			return
		case <-time.After(retryEvery):
		}
		if db.troubles.writes.Load() == nil {
			continue // a caller's write was accepted meanwhile
		}
		_ = db.Write(db.ctx, func(tx *Tx) error { // Write keeps its outcome
			_, err := tx.Exec(`UPDATE store_migrations SET applied_at = applied_at WHERE position = 1`)
			return err
		})
	}
}

// Trouble returns why the last jobs failed because of the database; nil: they did not, or a
// later write succeeded. It asks nothing of the database.
func (db *DB) Trouble() error {
	for _, last := range []*error{db.troubles.writes.Load(), db.troubles.reads.Load()} {
		if last != nil {
			return *last
		}
	}
	return nil
}
