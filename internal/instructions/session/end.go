package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/doorward/doorward/internal/base/store"
)

// errOver ends a job whose session the database does not know to live.
var errOver = errors.New("the session has ended")

// End ends a session; reason is ReasonEnded, ReasonRevoked or another of them.
// Its tokens are refused, its Done is closed and Options.Ended has heard of it
// before the database is asked: an end waits for no disk.
//
// Errors: ErrUnknown, also for a session that has ended; or ErrUnsaved with one
// of the store, and the session: it has ended all the same, and note's record
// was not made.
func (k *Keeper) End(ctx context.Context, id, reason string, note Note) (*Session, error) {
	if !isReason(reason) {
		return nil, fmt.Errorf("ending a session: %q is not a valid reason", reason)
	}
	k.mu.RLock()
	e := k.sessions[id]
	k.mu.RUnlock()
	if e == nil || !k.finish(e, milli(k.o.Now()), reason) {
		return nil, ErrUnknown
	}
	k.tell(id)
	e.acting.Lock() // a renewal under way enters its token first, and ours takes it away
	defer e.acting.Unlock()
	ended := k.state(e)
	err := k.enterEnd(ctx, ended, note)
	if err == nil || errors.Is(err, errOver) { // errOver: the database has known before
		return ended, nil
	}
	k.later(e)
	return ended, fmt.Errorf("%w: %w", ErrUnsaved, err)
}

// later leaves the end of a session to Run.
func (k *Keeper) later(e *entry) {
	k.mu.Lock()
	e.unsaved = true
	k.mu.Unlock()
	wake(k.slow)
}

func (k *Keeper) enterEnd(ctx context.Context, s *Session, note Note) error {
	return k.o.DB.Act(ctx, func(tx *store.Tx) error {
		if err := k.rows.markEnded(tx, s); err != nil {
			return err
		}
		return noted(tx, note, s)
	})
}

func isReason(s string) bool {
	return s == ReasonEnded || s == ReasonRevoked || s == ReasonExpired || s == ReasonProcess
}

// act runs f on a live session while no other act does.
func (k *Keeper) act(id string, do func(e *entry) error) error {
	k.mu.RLock()
	e := k.sessions[id]
	k.mu.RUnlock()
	if e == nil {
		return ErrUnknown
	}
	e.acting.Lock()
	defer e.acting.Unlock()
	if !k.state(e).Ended.IsZero() {
		return ErrUnknown
	}
	return do(e)
}

// state is what a session is now.
func (k *Keeper) state(e *entry) *Session {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return e.copy()
}

// finish ends a session here whose end is in the database, and reports whether
// that was news.
func (k *Keeper) finish(e *entry, at time.Time, reason string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.end(e, at, reason)
}

// disown ends a session here that the database does not know to be live: its end
// was committed without an answer, or another daemon wrote to it.
func (k *Keeper) disown(e *entry) bool { return k.finish(e, milli(k.o.Now()), ReasonRevoked) }

// tell reports the end of a session, without holding a lock, so that the receiver
// may act on sessions.
func (k *Keeper) tell(id string) {
	if s, ok := k.Find(id); ok {
		k.o.Ended(s)
	}
}
