package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/trust/audit"
)

// The database keeps the last checkpoint of the audit log. A log that was removed, or
// replaced by an older copy of itself, is consistent in itself; the comparison with the
// database shows which records it lacks.

func keptMigrations() []store.Migration {
	return []store.Migration{{Name: "audit-1", SQL: []string{
		// last: the newest checkpoint. missing: one that the log did not have when
		// a daemon started, until it has it again or the operator accepts the log.
		`CREATE TABLE audit_checkpoints (
			node TEXT NOT NULL,
			kind TEXT NOT NULL CHECK (kind IN ('last', 'missing')),
			seq INTEGER NOT NULL,
			hash TEXT NOT NULL,
			time TEXT NOT NULL,
			PRIMARY KEY (node, kind)
		) STRICT`}}}
}

const (
	keptLast    = "last"
	keptMissing = "missing"
)

// keeping reads and writes the checkpoints of one log in the database.
type keeping struct {
	node string // name of the daemon; empty if no other daemon uses the database
	log  *audit.Log
}

func (k keeping) read(tx *store.Tx, kind string) (m audit.Mark, ok bool, err error) {
	var seq int64
	err = tx.Row([]any{&seq, &m.Hash, &m.Time}, `SELECT seq, hash, time FROM audit_checkpoints WHERE node = ?1 AND kind = ?2`, k.node, kind)
	if errors.Is(err, store.ErrNoRow) {
		return m, false, nil
	}
	m.Seq = uint64(seq)
	return m, err == nil, err
}

func (k keeping) write(tx *store.Tx, kind string, m audit.Mark) error {
	_, err := tx.Exec(`INSERT INTO audit_checkpoints (node, kind, seq, hash, time) VALUES (?1, ?2, ?3, ?4, ?5)
		ON CONFLICT (node, kind) DO UPDATE SET seq = ?3, hash = ?4, time = ?5`, k.node, kind, int64(m.Seq), m.Hash, m.Time)
	return err
}

func (k keeping) forget(tx *store.Tx, kind string) error {
	_, err := tx.Exec(`DELETE FROM audit_checkpoints WHERE node = ?1 AND kind = ?2`, k.node, kind)
	return err
}

// settle compares the log with the kept checkpoints, and stores the log's newest checkpoint.
// A checkpoint that the log lacks is kept as missing, so that a new log does not hide its
// predecessor.
func (k keeping) settle(tx *store.Tx) (missing audit.Mark, lacks bool, err error) {
	for _, kind := range []string{keptMissing, keptLast} {
		m, ok, err := k.read(tx, kind)
		if err != nil {
			return missing, false, err
		}
		if !ok {
			continue
		}
		has, err := auditlog.Has(k.log, m)
		switch {
		case err != nil || !has: // an unreadable log counts as lacking the checkpoint
			if !lacks {
				missing, lacks = m, true
			}
		case kind == keptMissing:
			if err := k.forget(tx, kind); err != nil {
				return missing, false, err
			}
		}
	}
	if lacks {
		if err := k.write(tx, keptMissing, missing); err != nil {
			return missing, false, err
		}
	}
	if m, ok := k.log.Checkpointed(); ok {
		return missing, lacks, k.write(tx, keptLast, m)
	}
	return missing, lacks, nil
}

// expected returns the checkpoints that the log must have, the newest last.
func (k keeping) expected(tx *store.Tx) (all []audit.Mark, err error) {
	for _, kind := range []string{keptMissing, keptLast} {
		m, ok, err := k.read(tx, kind)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, m)
		}
	}
	return all, nil
}

// keepTime bounds one operation of the database.
const keepTime = 2 * time.Second

// keptNode returns the name under which a daemon's log is kept: empty in a database that no
// other daemon uses.
func keptNode(c *config.Config) string {
	if c.Store.Postgres.Empty() {
		return ""
	}
	return nodeName(c)
}

// checkpoints keeps the newest checkpoint of the audit log in the database.
type checkpoints struct {
	keeping
	o       Options
	db      atomic.Pointer[store.DB] // nil: no database keeps them now
	kept    atomic.Bool              // a database has kept them in this run
	lacking atomic.Pointer[string]   // describes the checkpoint that the log lacks; nil: none
	fresh   chan struct{}            // signals a new checkpoint
}

func newCheckpoints(o Options) *checkpoints {
	return &checkpoints{keeping: keeping{node: keptNode(o.Config)}, o: o, fresh: make(chan struct{}, 1)}
}

// keep compares the log with the database and stores its checkpoints there until end is
// called.
func (c *checkpoints) keep(ctx context.Context, db *store.DB) (end func(), err error) {
	if err := c.compare(ctx, db); err != nil {
		return nil, fmt.Errorf("keeping the audit log's checkpoints: %w", err)
	}
	c.db.Store(db)
	running, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-running.Done():
				return
			case <-c.fresh:
			}
			if err := c.newest(running, db); err != nil && running.Err() == nil {
				c.o.Log.Error("the audit log's last checkpoint could not be stored in the database", "err", err)
			}
		}
	})
	return func() { stop(); done.Wait(); c.db.Store(nil) }, nil
}

// compare compares the log with the database, and reports what the log lacks.
func (c *checkpoints) compare(ctx context.Context, db *store.DB) error {
	ctx, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	var missing audit.Mark
	var lacks bool
	err := db.Write(ctx, func(tx *store.Tx) (err error) {
		missing, lacks, err = c.settle(tx)
		return err
	})
	if err != nil {
		return err
	}
	c.kept.Store(true)
	if !lacks {
		c.lacking.Store(nil)
		return nil
	}
	text := fmt.Sprintf("the audit log lacks the checkpoint of %s over %d records that is in the database: the log was removed, cut off or replaced by an older copy; find out why, and accept it with `doorward audit verify --accept`", missing.Time, missing.Seq)
	if c.lacking.Swap(&text) == nil {
		c.o.Log.Error(text)
		c.log.Later(&audit.Record{Kind: audit.Event, Source: "audit", Action: "audit.missing", Count: int64(missing.Seq), Reason: "the log lacks a checkpoint that is in the database"})
	}
	return nil
}

// newest writes the log's newest checkpoint to the database.
func (c *checkpoints) newest(ctx context.Context, db *store.DB) error {
	m, ok := c.log.Checkpointed()
	if !ok {
		return nil
	}
	return db.Write(ctx, func(tx *store.Tx) error { return c.write(tx, keptLast, m) })
}

// wake makes keep store the newest checkpoint. It is called under the log's lock.
func (c *checkpoints) wake(audit.Mark) {
	select {
	case c.fresh <- struct{}{}:
	default:
	}
}

// final stores the last checkpoint of the closed log, which is written after the database was
// closed. Without it the removal of the last records would not be noticed.
func (c *checkpoints) final() {
	if !c.kept.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), keepTime)
	defer cancel()
	db, err := openStore(ctx, c.o, store.Options{Log: c.o.Log})
	if err == nil {
		err = errors.Join(c.newest(ctx, db), db.Close())
	}
	if err != nil {
		c.o.Log.Warn("the audit log's last checkpoint could not be stored in the database", "err", err)
	}
}

// required returns the checkpoints that the log of a running daemon must have.
func (c *checkpoints) required(ctx context.Context) (all []audit.Mark, err error) {
	db := c.db.Load()
	if db == nil {
		return nil, errors.New("its database cannot be used now")
	}
	ctx, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	err = db.Read(ctx, func(tx *store.Tx) (err error) {
		all, err = c.expected(tx)
		return err
	})
	return all, err
}

// answer serves required for `doorward audit verify`.
func (c *checkpoints) answer(r *http.Request) (any, int) {
	all, err := c.required(r.Context())
	if err != nil {
		return admin.Kept{Unknown: err.Error()}, http.StatusOK
	}
	return admin.Kept{Marks: all}, http.StatusOK
}

// KeptMarks returns the checkpoints that the log must have. It is for use without a running
// daemon, and changes nothing: after a diagnosis the daemon of an older version can still use
// the database. Without a database there are none.
func KeptMarks(ctx context.Context, o Options) (all []audit.Mark, err error) {
	if o.Config.Store.Postgres.Empty() {
		if _, err := os.Stat(filepath.Join(o.StateDir, "doorward.db")); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	db, err := openStore(ctx, o, store.Options{Log: o.Log, AsIs: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	lacks := db.Lacks()
	if len(lacks) == len(Migrations()) {
		return nil, nil // a new database
	}
	if len(lacks) > 0 {
		o.Log.Warn("the database has the schema of an older version; `doorward serve` of this version updates it", "lacks", lacks)
	}
	if slices.Contains(lacks, "audit-1") {
		return nil, nil
	}
	err = db.Read(ctx, func(tx *store.Tx) (err error) {
		all, err = keeping{node: keptNode(o.Config)}.expected(tx)
		return err
	})
	return all, err
}
