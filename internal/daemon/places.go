package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/trust/audit"
)

// places is a list of directories that must keep the paths that they had at the start.
type places []*durable.Pinned

// check reports an error if a directory is no longer at its path.
func (p places) check() error {
	for _, place := range p {
		if err := place.Check(); err != nil {
			return err
		}
	}
	return nil
}

// placeEvery is the interval of the checks.
const placeEvery = time.Second

// watch reports when a directory has been moved, and when it is back. Meanwhile the readers
// of its files refuse to read the replacement.
func (p places) watch(ctx context.Context, log *slog.Logger, record *audit.Log) {
	tick := time.Tick(placeEvery)
	for moved := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		err := p.check()
		switch {
		case err != nil && !moved:
			log.Error("a directory of the daemon was moved away: its replacement is not read", "err", err)
			record.Later(&audit.Record{Kind: audit.Event, Source: "config", Action: "state.moved"})
		case err == nil && moved:
			log.Info("the daemon's directories are back in place")
			record.Later(&audit.Record{Kind: audit.Event, Source: "config", Action: "state.back"})
		}
		moved = err != nil
	}
}
