package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/doorward/doorward/internal/base/durable"
)

const (
	fileName = "doorward.db"
	readers  = 4
)

// pragmas are those of the writing connection. They are not configurable. The two fullfsync
// pragmas have an effect only on macOS.
var pragmas = []string{
	"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "fullfsync(1)", "checkpoint_fullfsync(1)",
	"foreign_keys(1)", "temp_store(MEMORY)", "journal_size_limit(67108864)", "cache_size(-1024)",
}

// readerPragmas are those of a reading connection. Its page cache is small, because the
// system caches the file too.
var readerPragmas = []string{"busy_timeout(10000)", "query_only(1)", "temp_store(MEMORY)", "cache_size(-512)"}

// sqlite is the embedded engine: one writer, which commits jobs in groups, and a few
// connections that read.
type sqlite struct {
	writer  *writer
	readers *pool[*sqliteConn]
	lock    *os.File
	once    sync.Once
}

func openSQLite(ctx context.Context, o Options, h *hub, count *counters) (_ *sqlite, err error) {
	path, lock, err := claim(o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, durable.Unlock(lock))
		}
	}()
	open := func(ctx context.Context) (*sqliteConn, error) {
		if err := ownFiles(path); err != nil {
			return nil, err
		}
		return openConn(ctx, path, false, count)
	}
	if o.AsIs {
		e := &sqlite{lock: lock, writer: newWriter(o, nil, open, h, count)}
		e.readers = newPool(readers, func(ctx context.Context) (*sqliteConn, error) { return openRaw(ctx, path, true, count) })
		return e, nil
	}
	first, err := open(ctx)
	if err == nil {
		if err = migrateSQLite(ctx, first, path, o); err != nil {
			err = errors.Join(err, first.Close())
		}
	}
	if err != nil {
		return nil, err
	}
	e := &sqlite{lock: lock, writer: newWriter(o, first, open, h, count)}
	e.readers = newPool(readers, func(ctx context.Context) (*sqliteConn, error) { return openConn(ctx, path, true, count) })
	return e, nil
}

func (e *sqlite) name() string { return SQLite }

func (e *sqlite) write(ctx context.Context, job func(*Tx) error) error {
	return e.writer.write(ctx, job)
}

// read runs job on a connection that cannot write. Its deferred transaction has the view
// of its first statement.
func (e *sqlite) read(ctx context.Context, job func(*Tx) error) error {
	c, err := e.readers.get(ctx)
	if err != nil {
		return err
	}
	tx := &Tx{ctx: ctx, s: c, now: e.writer.now(), readOnly: true}
	defer func() {
		// Also when the job panicked: the connection stays usable.
		tx.over = true
		if _, err := c.exec(context.Background(), "ROLLBACK", nil); err != nil {
			e.readers.drop(c)
			return
		}
		e.readers.put(c)
	}()
	if _, err := c.exec(context.Background(), "BEGIN DEFERRED", nil); err != nil {
		return unavailable(err)
	}
	return tx.outcome(job(tx))
}

// close waits for the running group and for the readers. Closing the last connection
// checkpoints the log and removes it.
func (e *sqlite) close() error {
	err := errClosed
	e.once.Do(func() {
		e.writer.stop()
		err = errors.Join(e.readers.close(), e.writer.close(), durable.Unlock(e.lock))
	})
	if errors.Is(err, errClosed) {
		return nil
	}
	return err
}

func dbPath(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	return filepath.Join(dir, fileName), err
}
