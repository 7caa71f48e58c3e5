package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/store"
)

const (
	turn    = time.Second      // how often Run looks at the sessions
	tidy    = time.Minute      // how often old rows are deleted
	anew    = 2 * time.Second  // pause after a failed save; until then a crash would revive a revoked session
	chunk   = 256              // ends in one transaction
	patient = 10 * time.Second // time limit of a database operation
)

const unsaved = "the ends of sessions could not be saved; the sessions have ended nevertheless"

// Run ends expired sessions and those whose bound process is gone, once a second. It
// deletes sessions that ended 30 days ago, and rotates the keys after 30 days. It returns
// when ctx ends. A disk or a database that hangs delays its writes, not its checks.
func (k *Keeper) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { upkeep{k}.write(ctx) })
	defer wg.Wait()
	t := time.Tick(turn)
	for {
		upkeep{k}.turn()
		select {
		case <-ctx.Done():
			return
		case <-t:
		case <-k.poke:
		}
	}
}

// upkeep ends, saves and deletes sessions for Run.
type upkeep struct{ k *Keeper }

// turn checks the sessions once, and reports those that ended.
func (u upkeep) turn() {
	ended := u.look()
	u.k.mu.Lock()
	ended = append(u.k.untold, ended...)
	u.k.untold = nil
	u.k.mu.Unlock()
	if len(ended) > 0 {
		wake(u.k.slow)
	}
	for _, s := range ended {
		u.k.o.Ended(s)
	}
}

// look ends, in memory, expired sessions and those whose bound process is gone, and drops
// expired tokens. The end of a session does not wait for the database: it is saved later,
// and determined again after a crash.
func (u upkeep) look() (ended []Session) {
	now := u.k.o.Now()
	gone := u.gone()
	u.k.mu.Lock()
	defer u.k.mu.Unlock()
	for _, e := range u.k.sessions {
		e.grants = slices.DeleteFunc(e.grants, func(g *grant) bool {
			over := !now.Before(g.until)
			if over {
				delete(u.k.grants, g.id)
			}
			return over
		})
		reason := ""
		switch {
		case !now.Before(e.Expires):
			reason = ReasonExpired
		case e.Bind != "" && gone[e.Bind]:
			reason = ReasonProcess
		}
		if reason != "" && u.k.end(e, milli(now), reason) {
			e.unsaved = true
			ended = append(ended, *e.copy())
		}
	}
	return ended
}

// gone checks each bound process once, without holding a lock.
func (u upkeep) gone() map[string]bool {
	bound := make(map[string]bool)
	u.k.mu.RLock()
	for _, e := range u.k.sessions {
		if e.Bind != "" && e.Ended.IsZero() {
			bound[e.Bind] = false
		}
	}
	u.k.mu.RUnlock()
	for bind := range bound {
		bound[bind] = u.k.o.Gone(bind)
	}
	return bound
}

// write does the work that waits for a disk.
func (u upkeep) write(ctx context.Context) {
	t := time.Tick(tidy)
	var failed <-chan time.Time // nil: nothing waits
	for {
		err := u.save(ctx)
		if err != nil && ctx.Err() == nil && failed == nil {
			u.k.o.Log.Error(unsaved, slog.Any("error", err))
		}
		if failed = nil; err != nil {
			failed = time.After(anew)
		}
		select {
		case <-ctx.Done():
			return
		case <-u.k.slow:
			continue
		case <-failed:
			continue
		case <-t:
		}
		if err := u.tidy(ctx); err != nil && ctx.Err() == nil {
			u.k.o.Log.Error("ended sessions could not be removed", slog.Any("error", err))
		}
		if err := u.rotate(); err != nil {
			u.k.o.Log.Error("the session keys could not be rotated; the present one stays in use", slog.Any("error", err))
		}
	}
}

// save writes the ends that the database does not have.
func (u upkeep) save(ctx context.Context) error {
	for {
		ctx, cancel := context.WithTimeout(ctx, patient)
		n, err := u.saveSome(ctx)
		cancel()
		if err != nil || n < chunk {
			return err
		}
	}
}

func (u upkeep) saveSome(ctx context.Context) (int, error) {
	var todo []*entry
	var ends []*Session
	u.k.mu.RLock()
	for _, e := range u.k.sessions {
		if e.unsaved && len(todo) < chunk {
			todo, ends = append(todo, e), append(ends, e.copy())
		}
	}
	u.k.mu.RUnlock()
	if len(todo) == 0 {
		return 0, nil
	}
	err := u.k.o.DB.Act(ctx, func(tx *store.Tx) error {
		for _, s := range ends {
			err := u.k.rows.markEnded(tx, s)
			if errors.Is(err, errOver) { // the end is in the database already
				continue
			}
			if err == nil {
				err = noted(tx, u.k.o.Record, s)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	u.k.mu.Lock()
	defer u.k.mu.Unlock()
	for _, e := range todo {
		e.unsaved = false
	}
	return len(todo), nil
}

// tidy deletes sessions that ended long ago, and the oldest ended ones beyond the limit.
func (u upkeep) tidy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	now := u.k.o.Now()
	before := now.Add(-Kept)
	old, over := u.outdated(before)
	if err := u.k.o.DB.Write(ctx, func(tx *store.Tx) error { return u.k.rows.forget(tx, now, before, over) }); err != nil {
		return err
	}
	u.k.mu.Lock()
	defer u.k.mu.Unlock()
	for _, id := range slices.Concat(old, over) {
		for _, g := range u.k.sessions[id].grants {
			delete(u.k.grants, g.id)
		}
		delete(u.k.sessions, id)
	}
	return nil
}

// outdated returns the sessions that ended before a time, and the oldest of the other
// ended ones beyond the limit. A session whose end is not saved is kept.
func (u upkeep) outdated(before time.Time) (old, over []string) {
	var ended []*entry
	u.k.mu.RLock()
	defer u.k.mu.RUnlock()
	for _, e := range u.k.sessions {
		switch {
		case e.Ended.IsZero() || e.unsaved:
		case !e.Ended.After(before):
			old = append(old, e.ID)
		default:
			ended = append(ended, e)
		}
	}
	slices.SortFunc(ended, func(a, b *entry) int { return b.Ended.Compare(a.Ended) })
	for i := u.k.limits.ended; i < len(ended); i++ {
		over = append(over, ended[i].ID)
	}
	return old, over
}

// rotate rotates the keys when it is due.
func (u upkeep) rotate() error {
	now, held := u.k.o.Now(), u.k.ring.Load()
	if !held.due(now) {
		return nil
	}
	if err := u.k.place.Check(); err != nil { // else another directory's keys could be taken over
		return fmt.Errorf("rotating the session keys: %w", err)
	}
	next, err := held.rotate(u.k.o.Dir, now)
	if err != nil {
		return err
	}
	u.k.ring.Store(next)
	u.k.o.Log.Info("the session keys were rotated")
	return nil
}
