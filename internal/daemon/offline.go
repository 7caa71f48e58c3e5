package daemon

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

// lookTime is how long the first look at the documents may take.
const lookTime = 5 * time.Second

// OpenInstructions returns the operator's side of instruction delivery where no
// daemon runs: what it does is decided and recorded as the daemon would. By is
// this process's own user. A daemon that runs on the state directory is an
// error, since its record and its database are its own. Call end when done.
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
