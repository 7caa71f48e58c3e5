package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/doorward/doorward/internal/base/store"
)

// errOver ends a job whose session is not live in the database.
var errOver = errors.New("the session has ended")

// End ends a session; reason is one of the Reason constants. Its tokens are refused, its
// Done is closed and Options.Ended was called before the database is used: an end does
// not wait for a disk.
//
// Errors: ErrUnknown, also for a session that has ended; or ErrUnsaved together with an
// error of the store, and the session: it has ended, but note's record was not made.
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
	e.acting.Lock() // a renewal in progress inserts its token first, and this end deletes it
	defer e.acting.Unlock()
	ended := k.state(e)
	err := k.enterEnd(ctx, ended, note)
	if err == nil || errors.Is(err, errOver) { // errOver: the end is in the database already
		return ended, nil
	}
	k.later(e)
	return ended, fmt.Errorf("%w: %w", ErrUnsaved, err)
}

// later leaves the saving of an end to Run.
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

// act runs do on a live session, one act at a time.
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

// state returns a copy of the present session.
func (k *Keeper) state(e *entry) *Session {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return e.copy()
}

// finish ends a session in memory, and reports whether it was live.
func (k *Keeper) finish(e *entry, at time.Time, reason string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.end(e, at, reason)
}

// disown ends a session in memory that is not live in the database: its end was committed
// without an answer, or another daemon wrote to it.
func (k *Keeper) disown(e *entry) bool { return k.finish(e, milli(k.o.Now()), ReasonRevoked) }

// tell calls Options.Ended for a session, without holding a lock, so that the receiver
// may act on sessions.
func (k *Keeper) tell(id string) {
	if s, ok := k.Find(id); ok {
		k.o.Ended(s)
	}
}
