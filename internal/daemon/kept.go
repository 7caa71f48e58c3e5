package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/trust/audit"
)

// The database keeps the last checkpoint of the audit log. A log that was
// removed, or replaced by an older copy of itself, is whole in itself: what it
// lacks is known by what the database has.

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

// keeping is the checkpoints of one log in the database.
type keeping struct {
	node string // empty in a database that no other daemon uses
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

// settle compares the log with what is kept, and keeps its newest checkpoint
// from now on. What the log lacks stays as missing: a log that begins anew must
// not make its predecessor forgotten.
func (k keeping) settle(tx *store.Tx) (missing audit.Mark, lacks bool, err error) {
	for _, kind := range []string{keptMissing, keptLast} {
		m, ok, err := k.read(tx, kind)
		if err != nil {
			return missing, false, err
		}
		if !ok {
			continue
		}
		has, err := k.log.Has(m)
		switch {
		case err != nil || !has: // checkpoints that cannot be read vouch for nothing
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

// expected are the checkpoints that the log must have, the newest last.
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

// keepTime is how long the database may take for it.
const keepTime = 2 * time.Second

// keptNode is whose log it is, where daemons share a database.
func (d *Daemon) keptNode() string {
	if d.o.Config.Store.Postgres.Empty() {
		return ""
	}
	return d.node()
}

// keepCheckpoints compares the log with the database and keeps its checkpoints
// there until end.
func (d *Daemon) keepCheckpoints(ctx context.Context, db *store.DB) (end func(), err error) {
	if err := d.settleKept(ctx, db); err != nil {
		return nil, fmt.Errorf("keeping the audit log's checkpoints: %w", err)
	}
	d.kept.Store(db)
	running, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-running.Done():
				return
			case <-d.checkpointed:
			}
			if err := d.keepNewest(running, db); err != nil && running.Err() == nil {
				d.log.Error("the database does not keep the audit log's last checkpoint", "err", err)
			}
		}
	})
	return func() { stop(); done.Wait(); d.kept.Store(nil) }, nil
}

// settleKept also tells everybody what the log lacks.
func (d *Daemon) settleKept(ctx context.Context, db *store.DB) error {
	ctx, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	var missing audit.Mark
	var lacks bool
	err := db.Write(ctx, func(tx *store.Tx) (err error) {
		missing, lacks, err = keeping{d.keptNode(), d.audit}.settle(tx)
		return err
	})
	if err != nil {
		return err
	}
	d.keeps = true
	if !lacks {
		d.lacking.Store(nil)
		return nil
	}
	text := fmt.Sprintf("the audit log does not have the checkpoint of %s about %d records, which the database keeps: it was removed, cut, or replaced by another copy; find out why, and accept the log as it is with `doorward audit verify --accept`", missing.Time, missing.Seq)
	if d.lacking.Swap(&text) == nil {
		d.log.Error(text)
		d.audit.Later(&audit.Record{Kind: audit.Event, Source: "audit", Action: "audit.missing", Count: int64(missing.Seq), Reason: "the log lacks a checkpoint that the database keeps"})
	}
	return nil
}

func (d *Daemon) keepNewest(ctx context.Context, db *store.DB) error {
	m, ok := d.audit.Checkpointed()
	if !ok {
		return nil
	}
	return db.Write(ctx, func(tx *store.Tx) error { return keeping{d.keptNode(), d.audit}.write(tx, keptLast, m) })
}

// onCheckpoint wakes whoever keeps it; it runs under the log's lock.
func (d *Daemon) onCheckpoint(audit.Mark) {
	select {
	case d.checkpointed <- struct{}{}:
	default:
	}
}

// keepFinal keeps the checkpoint of the closed log, which is written after the
// database was closed: what happened last would be the easiest to cut off.
func (d *Daemon) keepFinal() {
	if !d.keeps {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), keepTime)
	defer cancel()
	db, err := openStore(ctx, d.o, store.Options{Log: d.log})
	if err == nil {
		err = errors.Join(d.keepNewest(ctx, db), db.Close())
	}
	if err != nil {
		d.log.Warn("the database does not keep the audit log's last checkpoint", "err", err)
	}
}

// expectedMarks are the checkpoints that the log of a running daemon must have.
func (d *Daemon) expectedMarks(ctx context.Context) (all []audit.Mark, err error) {
	db := d.kept.Load()
	if db == nil {
		return nil, errors.New("its database cannot be used now")
	}
	ctx, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	err = db.Read(ctx, func(tx *store.Tx) (err error) {
		all, err = keeping{d.keptNode(), d.audit}.expected(tx)
		return err
	})
	return all, err
}

// keptAnswer is expectedMarks for `doorward audit verify`.
func (d *Daemon) keptAnswer(r *http.Request) (any, int) {
	all, err := d.expectedMarks(r.Context())
	if err != nil {
		return admin.Kept{Unknown: err.Error()}, http.StatusOK
	}
	return admin.Kept{Marks: all}, http.StatusOK
}

// KeptMarks are expectedMarks where no daemon runs: none where there is no
// database.
func KeptMarks(ctx context.Context, o Options) (all []audit.Mark, err error) {
	d := &Daemon{o: o, log: o.Log}
	if o.Config.Store.Postgres.Empty() {
		if _, err := os.Stat(filepath.Join(o.StateDir, "doorward.db")); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	db, err := openStore(ctx, o, store.Options{Log: o.Log})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.Read(ctx, func(tx *store.Tx) (err error) {
		all, err = keeping{node: d.keptNode()}.expected(tx)
		return err
	})
	return all, err
}

// AcceptAudit makes the log as it is what the database keeps, and records that.
// No daemon may run.
func AcceptAudit(ctx context.Context, o Options) (err error) {
	d := &Daemon{o: o, log: o.Log, offline: true}
	defer d.Close()
	for _, step := range []func() error{d.openState, d.openAudit} {
		if err := step(); err != nil {
			return err
		}
	}
	db, err := openStore(ctx, o, store.Options{Log: o.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	k := keeping{d.keptNode(), d.audit}
	d.keeps = true
	return db.Write(ctx, func(tx *store.Tx) error {
		was, err := k.expected(tx)
		if err != nil {
			return err
		}
		r := &audit.Record{Kind: audit.Event, Source: "audit", Action: "audit.accepted"}
		if len(was) > 0 {
			r.Detail = []audit.Field{{Name: "records", Value: strconv.FormatUint(was[0].Seq, 10)}, {Name: "digest", Value: was[0].Hash}}
		}
		if _, err := d.audit.Append(r); err != nil {
			return err
		}
		return errors.Join(k.forget(tx, keptMissing), k.forget(tx, keptLast))
	})
}
