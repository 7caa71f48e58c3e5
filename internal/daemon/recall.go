package daemon

import (
	"context"
	"iter"

	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/trust/audit"
)

// pastRecords is the record, from its end on, where somebody counts on
// instructions.
func (d *Daemon) pastRecords() func(context.Context) iter.Seq2[[]byte, error] {
	if !d.wantsInstructions() {
		return nil
	}
	dir := AuditDir(d.o.StateDir, d.o.Config)
	return func(ctx context.Context) iter.Seq2[[]byte, error] { return audit.Backwards(ctx, dir) }
}

// recall brings back the marks of what was delivered before this start. A start
// does not wait for it: there may be many.
func (d *Daemon) recall(ctx context.Context, shelf *library.Library) {
	err := d.instructing.server.Reckon(ctx, shelf)
	if err == nil || ctx.Err() != nil {
		return
	}
	d.log.Error("the marks of earlier deliveries are not known yet", "err", err)
	again(ctx, func() bool { return d.instructing.server.Reckon(ctx, shelf) == nil })
}
