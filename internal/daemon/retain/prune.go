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
	// Before records a prune with its beginning; an error ends the prune.
	Before func(audit.Beginning) error
	// Step is called before each change of the disk, with its name; an error ends the prune
	// there. Tests stop at each. It may be nil.
	Step func(next string) error
}

// Through removes the segments up to n, which is closed. An error that wraps
// audit.ErrDamaged says that these segments do not verify; then none is removed.
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

// Finish removes the files that an interrupted prune has left. It does nothing when there
// are none.
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
