package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/doorward/doorward/internal/base/store"
)

// Renew gives a session a new token. The earlier tokens are valid for Overlap longer. The
// session ends at most MaxLife after its first token was issued: at that bound the new
// token ends with the old.
//
// Errors: ErrUnknown, ErrTooMany, or one of the store; the old token stays valid then.
func (k *Keeper) Renew(ctx context.Context, s *Session, note Note) (token string, renewed *Session, err error) {
	over := false
	err = k.act(s.ID, func(e *entry) error {
		token, renewed, err = k.renew(ctx, e, note)
		if errors.Is(err, errOver) {
			err, over = ErrUnknown, k.disown(e)
		}
		return err
	})
	if over {
		k.tell(s.ID)
	}
	return token, renewed, err
}

func (k *Keeper) renew(ctx context.Context, e *entry, note Note) (string, *Session, error) {
	sid, now := newSID(), k.o.Now()
	g, next, err := k.successor(e, sid, now)
	if err != nil {
		return "", nil, err
	}
	token, err := k.tokens.claims(next, sid, g).write(k.ring.Load().newest())
	if err != nil {
		return "", nil, err
	}
	err = k.o.DB.Act(ctx, func(tx *store.Tx) error {
		if err := k.rows.replace(tx, next, g, now.Add(Overlap)); err != nil {
			return err
		}
		return noted(tx, note, next)
	})
	if err != nil {
		return "", nil, fmt.Errorf("renewing a session: %w", err)
	}
	renewed, err := k.adopt(e, g, now)
	if err != nil {
		return "", nil, err
	}
	return token, renewed, nil
}

// successor returns the next token of a session, and the session with its times.
func (k *Keeper) successor(e *entry, sid string, now time.Time) (*grant, *Session, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	switch {
	case !e.Ended.IsZero() || !now.Before(e.Expires):
		return nil, nil, ErrUnknown
	case len(e.grants) > k.limits.renewals:
		return nil, nil, ErrTooMany
	}
	g, next := e.next(sid, now), e.copy()
	next.Expires, next.RefreshAfter = e.times(g)
	return g, next, nil
}

// adopt publishes a committed token. A session that has ended meanwhile stays ended.
func (k *Keeper) adopt(e *entry, g *grant, now time.Time) (*Session, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !e.Ended.IsZero() {
		return nil, ErrUnknown
	}
	for _, old := range e.grants {
		if last := now.Add(Overlap); last.Before(old.until) {
			old.until = last
		}
	}
	e.grants = append(e.grants, g)
	k.grants[g.id] = g
	e.Expires, e.RefreshAfter = e.times(g)
	k.count.add(func(s *Stats) { s.Renewed++ })
	return e.copy(), nil
}
