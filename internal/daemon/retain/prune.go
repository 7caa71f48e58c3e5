package retain

import (
	"context"
	"fmt"
	"os"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/trust/audit"
)

// Pruner removes segments of a log that is open for writing.
type Pruner struct {
	Log *audit.Log
	Dir string
	// Before makes the record of a prune, whose beginning it is told; an error ends it.
	Before func(audit.Beginning) error
	// Step is called between two changes of the disk, with the name of the one that
	// follows; an error ends the prune there. Tests stop at each. Nil: nothing is called.
	Step func(next string) error
}

// Through removes the segments up to n, which is closed. An error of the kind of
// audit.ErrDamaged says that what was to be removed is not whole; then all of it stays.
func (p Pruner) Through(ctx context.Context, n int) (audit.Beginning, error) {
	if err := p.step("begin"); err != nil {
		return audit.Beginning{}, err
	}
	b, err := auditlog.Cut(ctx, p.Log, n, p.Before)
	if err != nil {
		return b, err
	}
	return b, p.Finish()
}

// Finish removes what a prune that was interrupted has left. It does nothing when
// there is nothing left.
func (p Pruner) Finish() error {
	paths, err := auditlog.Removable(p.Dir)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := p.step("remove"); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("removing a pruned segment: %w", err)
		}
	}
	if err := p.step("trim"); err != nil {
		return err
	}
	if err := auditlog.TrimCheckpoints(p.Log); err != nil {
		return err
	}
	return p.step("done")
}

func (p Pruner) step(next string) error {
	if p.Step == nil {
		return nil
	}
	return p.Step(next)
}
