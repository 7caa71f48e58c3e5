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
	// Before records a prune with its beginning; an error stops the prune.
	Before func(audit.Beginning) error
	// Step is called with the name of each change of the disk before it is made; an error
	// stops the prune there. Tests stop at each step. It may be nil.
	Step func(next string) error
}

// Through removes the segments up to n, which must be closed. If the error wraps
// audit.ErrDamaged, these segments do not verify, and none is removed.
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

// Finish removes the files that an interrupted prune has left. If there are none, it does
// nothing.
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
