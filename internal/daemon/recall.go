package daemon

import (
	"context"
	"iter"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/instructions/library"
)

// pastRecords is the record, from its end on, where somebody counts on
// instructions.
func (m *instructing) pastRecords() func(context.Context) iter.Seq2[[]byte, error] {
	if !m.wanted() {
		return nil
	}
	dir := AuditDir(m.o.StateDir, m.o.Config)
	return func(ctx context.Context) iter.Seq2[[]byte, error] { return auditlog.Backwards(ctx, dir) }
}

// recall brings back the marks of what was delivered before this start. A start
// does not wait for it: there may be many.
func (m *instructing) recall(ctx context.Context, shelf *library.Library) {
	err := m.server.Reckon(ctx, shelf)
	if err == nil || ctx.Err() != nil {
		return
	}
	m.o.Log.Error("the marks of earlier deliveries are not known yet", "err", err)
	again(ctx, func() bool { return m.server.Reckon(ctx, shelf) == nil })
}
