package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

// lookTime is how long the first look at the documents may take.
const lookTime = 5 * time.Second

// OpenInstructions returns the operator's side of instruction delivery for use without a
// running daemon: its acts are decided and recorded as by the daemon. by is this process's
// own user. It fails if a daemon uses the state directory, which owns its record and its
// database. Call end when done.
func OpenInstructions(ctx context.Context, o Options) (op *deliver.Operator, by deliver.Caller, end func(), err error) {
	d := &Daemon{o: o, uid: uint32(os.Geteuid()), log: o.Log, offline: true}
	if err := d.openOffline(ctx); err != nil {
		d.Close()
		return nil, by, nil, err
	}
	by = deliver.Caller{Who: principal.New(principal.UID(d.uid)).WithLocal(), Complete: true}
	return d.instructing.server.Operator(), by, d.Close, nil
}

func (d *Daemon) openOffline(ctx context.Context) error {
	for _, step := range []func() error{d.openState, d.openAudit, d.openRules} {
		if err := step(); err != nil {
			return err
		}
	}
	d.openInstructing()
	if err := d.instructing.unkept; err != nil {
		return err
	}
	db, err := openStore(ctx, d.o, store.Options{Log: d.log, Record: recorder{d.gate, d.audit}.acts, Uncommitted: recorder{d.gate, d.audit}.uncommitted})
	if err != nil {
		return err
	}
	undo := new(undoing)
	d.onClose(undo.all)
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
	stored, err := d.instructing.openStored(ctx, db)
	if err != nil {
		return err
	}
	undo.add(d.instructing.run(ctx, stored))
	look, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	if err := stored.Shelf.Ready(look); err != nil {
		return fmt.Errorf("looking at the documents: %w", err)
	}
	return nil
}

// openRules makes the policy and the gate, for acts without a listener.
func (d *Daemon) openRules() error {
	d.outward = newOutward(d.o, d.audit)
	rules, err := d.compilePolicy(d.o.Config)
	if err != nil {
		return err
	}
	d.policy.Store(rules)
	d.gate = gate.New(rules.set, d.audit, gate.Limits{CallsPerSecond: d.o.Config.Limits.CallsPerSecond})
	return nil
}

// AcceptAudit replaces the checkpoints in the database by those of the present log, and
// records that. No daemon may be running.
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
	k := d.checkpoints
	k.kept.Store(true)
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

func (d *Daemon) openPruning(ctx context.Context) error {
	for _, step := range []func() error{d.openState, d.openAudit} {
		if err := step(); err != nil {
			return err
		}
	}
	db, err := openStore(ctx, d.o, store.Options{Log: d.log})
	if err != nil {
		return err
	}
	d.onClose(func() {
		if err := db.Close(); err != nil {
			d.log.Error("closing the store", "err", err)
		}
	})
	stop, err := d.checkpoints.keep(ctx, db)
	if err != nil {
		return err
	}
	d.onClose(stop)
	return d.retention.finish()
}

// Pruning removes records without a running daemon.
type Pruning struct{ d *Daemon }

// OpenPruning opens the log and the database for pruning. It fails if a daemon uses the state
// directory. Call end when done.
func OpenPruning(ctx context.Context, o Options) (p Pruning, end func(), err error) {
	p.d = &Daemon{o: o, uid: uint32(os.Geteuid()), log: o.Log, offline: true}
	if err := p.d.openPruning(ctx); err != nil {
		p.d.Close()
		return p, nil, fmt.Errorf("opening the audit log to prune it: %w", err)
	}
	return p, p.d.Close, nil
}

// Turn closes the open segment.
func (p Pruning) Turn() error { return p.d.retention.turn(nil) }

// Through removes the segments up to n in the name of this process's own user, and returns
// the number of the first record that remains.
func (p Pruning) Through(ctx context.Context, n int) (begins uint64, err error) {
	b, err := p.d.retention.prune(ctx, n, principal.New(principal.UID(p.d.uid)).WithLocal())
	return b.Seq + 1, err
}
