package library

import (
	"context"
	"errors"
	"time"
)

// follower keeps a library equal to what another Doorward serves.
type follower struct{ l *Library }

// run refreshes from the remote until ctx ends.
func (f follower) run(ctx context.Context) {
	defer f.l.remote.client.CloseIdleConnections()
	f.l.mu.Lock()
	f.l.farState.from = f.l.remote.from
	f.l.mu.Unlock()
	retry := retryFirst
	stale := time.AfterFunc(f.l.remote.Stale, func() {
		f.l.watcher.settle(func() { f.l.farState.stale = time.Since(f.l.farState.answered) >= f.l.remote.Stale })
	})
	defer stale.Stop()
	for first := true; ctx.Err() == nil; first = false {
		err := f.l.remote.refresh(ctx, first)
		if ctx.Err() != nil {
			return
		}
		wait := f.l.remote.Every
		if err != nil {
			wait, retry = min(retry, f.l.remote.Every), min(2*retry, f.l.remote.Every)
		} else {
			retry = retryFirst
			stale.Reset(f.l.remote.Stale)
		}
		f.l.watcher.settle(func() { f.came(err) })
		if first {
			close(f.l.ready)
		}
		pause(ctx, wait)
	}
}

// came takes over the result of a refresh. The caller holds mu.
func (f follower) came(err error) {
	s := &f.l.farState
	s.asked, s.trouble = true, ""
	if err != nil {
		s.trouble = err.Error()
		if s.refused = s.refused || errors.Is(err, ErrCredential); s.refused {
			f.l.far, s.problems = nil, nil
		}
		return
	}
	s.refused = false
	s.answered, s.stale = time.Now(), false
	f.l.far, s.problems = f.l.remote.catalog.content()
}
