package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/trust/audit"
)

// places are directories that must be reached by the paths they had at start.
type places []*durable.Pinned

// check reports whether the directories are still reached by their paths.
func (p places) check() error {
	for _, place := range p {
		if err := place.Check(); err != nil {
			return err
		}
	}
	return nil
}

// placeEvery is how often the directories are looked at.
const placeEvery = time.Second

// watch reports when a directory is not where it was, and when it is again.
// What is read there is refused meanwhile by those who read it.
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
