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
	turn    = time.Second     // how often Run looks
	tidy    = time.Minute     // how often what is over is forgotten
	anew    = 2 * time.Second // until what could not be saved is tried again: a crash would bring a revoked session back
	chunk   = 256             // ends in one transaction
	patient = 10 * time.Second
)

const unsaved = "ends of sessions could not be saved; they have ended all the same"

// Run ends sessions whose time is over and those whose bound process is gone,
// once a second; it forgets what ended 30 days ago, and gives the keys their
// successor after 30 days. It returns when ctx ends. A disk or a database that
// hangs keeps it from writing, not from looking.
func (k *Keeper) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { k.write(ctx) })
	defer wg.Wait()
	t := time.NewTicker(turn)
	defer t.Stop()
	for {
		k.turn()
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-k.poke:
		}
	}
}

// turn looks once, and tells what ended.
func (k *Keeper) turn() {
	ended := k.look()
	k.mu.Lock()
	ended = append(k.untold, ended...)
	k.untold = nil
	k.mu.Unlock()
	if len(ended) > 0 {
		wake(k.slow)
	}
	for _, s := range ended {
		k.o.Ended(s)
	}
}

// look ends expired sessions in memory, and drops unused tokens. The end of a
// session does not wait for the database: it is saved later, and found again
// after a crash.
func (k *Keeper) look() (ended []Session) {
	now := k.o.Now()
	gone := k.gone()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.sessions {
		e.grants = slices.DeleteFunc(e.grants, func(g *grant) bool {
			over := !now.Before(g.until)
			if over {
				delete(k.grants, g.id)
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
		if reason != "" && k.end(e, milli(now), reason) {
			e.unsaved = true
			ended = append(ended, *e.copy())
		}
	}
	return ended
}

// gone asks for each bound process once, without holding anybody up.
func (k *Keeper) gone() map[string]bool {
	bound := make(map[string]bool)
	k.mu.RLock()
	for _, e := range k.sessions {
		if e.Bind != "" && e.Ended.IsZero() {
			bound[e.Bind] = false
		}
	}
	k.mu.RUnlock()
	for bind := range bound {
		bound[bind] = k.o.Gone(bind)
	}
	return bound
}

// write does what waits for a disk.
func (k *Keeper) write(ctx context.Context) {
	t := time.NewTicker(tidy)
	defer t.Stop()
	var failed <-chan time.Time // nil: nothing waits
	for {
		err := k.save(ctx)
		if err != nil && ctx.Err() == nil && failed == nil {
			k.o.Log.Error(unsaved, slog.Any("error", err))
		}
		if failed = nil; err != nil {
			failed = time.After(anew)
		}
		select {
		case <-ctx.Done():
			return
		case <-k.slow:
			continue
		case <-failed:
			continue
		case <-t.C:
		}
		if err := k.tidy(ctx); err != nil && ctx.Err() == nil {
			k.o.Log.Error("sessions that are over could not be forgotten", slog.Any("error", err))
		}
		if err := k.rotate(); err != nil {
			k.o.Log.Error("the session keys could not be rotated; the present one goes on", slog.Any("error", err))
		}
	}
}

// save enters the ends that the database does not know.
func (k *Keeper) save(ctx context.Context) error {
	for {
		ctx, cancel := context.WithTimeout(ctx, patient)
		n, err := k.saveSome(ctx)
		cancel()
		if err != nil || n < chunk {
			return err
		}
	}
}

func (k *Keeper) saveSome(ctx context.Context) (int, error) {
	var todo []*entry
	var ends []*Session
	k.mu.RLock()
	for _, e := range k.sessions {
		if e.unsaved && len(todo) < chunk {
			todo, ends = append(todo, e), append(ends, e.copy())
		}
	}
	k.mu.RUnlock()
	if len(todo) == 0 {
		return 0, nil
	}
	err := k.o.DB.Act(ctx, func(tx *store.Tx) error {
		for _, s := range ends {
			err := k.rows.markEnded(tx, s)
			if errors.Is(err, errOver) { // the database has known before
				continue
			}
			if err == nil {
				err = noted(tx, k.o.Record, s)
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
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range todo {
		e.unsaved = false
	}
	return len(todo), nil
}

// tidy forgets sessions that ended long ago, and the oldest of those beyond
// what is kept at most.
func (k *Keeper) tidy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	now := k.o.Now()
	before := now.Add(-Kept)
	old, over := k.outdated(before)
	if err := k.o.DB.Write(ctx, func(tx *store.Tx) error { return k.rows.forget(tx, now, before, over) }); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range slices.Concat(old, over) {
		for _, g := range k.sessions[id].grants {
			delete(k.grants, g.id)
		}
		delete(k.sessions, id)
	}
	return nil
}

// outdated returns the sessions that ended before a time, and the oldest of the
// other ended ones beyond a number. An unsaved session is kept.
func (k *Keeper) outdated(before time.Time) (old, over []string) {
	var ended []*entry
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, e := range k.sessions {
		switch {
		case e.Ended.IsZero() || e.unsaved:
		case !e.Ended.After(before):
			old = append(old, e.ID)
		default:
			ended = append(ended, e)
		}
	}
	slices.SortFunc(ended, func(a, b *entry) int { return b.Ended.Compare(a.Ended) })
	for i := k.limits.ended; i < len(ended); i++ {
		over = append(over, ended[i].ID)
	}
	return old, over
}

// rotate gives the keys their successor when it is due.
func (k *Keeper) rotate() error {
	now, held := k.o.Now(), k.ring.Load()
	if !held.due(now) {
		return nil
	}
	if err := k.place.Check(); err != nil { // else another directory's keys would be taken for ours
		return fmt.Errorf("rotating the session keys: %w", err)
	}
	next, err := held.rotate(k.o.Dir, now)
	if err != nil {
		return err
	}
	k.ring.Store(next)
	k.o.Log.Info("the session keys were rotated")
	return nil
}
