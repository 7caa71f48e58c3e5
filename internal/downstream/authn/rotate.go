package authn

import (
	"slices"
	"time"
)

// Rotation configures how a token is replaced by a successor.
type Rotation struct {
	Overlap time.Duration // how long the predecessor is still accepted
	Expires time.Duration // life of the successor; 0: it does not expire
	Scope   *string       // scope of the successor; nil: unchanged
}

// Rotated is a successor and its predecessor.
type Rotated struct {
	Secret string // the successor's text, which is not stored
	Token
	Before Token
	was    Token // the predecessor without its successor
}

// Rotate makes a token that succeeds the token of that name. Both are accepted until
// the overlap is over or the predecessor expires by itself. Errors: ErrNoPredecessor,
// ErrScope, ErrExpiry, ErrOverlap, or a failure of the store.
func (s *Store) Rotate(name string, o Rotation) (Rotated, error) {
	switch {
	case o.Scope != nil && !validScope(*o.Scope):
		return Rotated{}, ErrScope
	case o.Expires < 0:
		return Rotated{}, ErrExpiry
	case o.Overlap < 0:
		return Rotated{}, ErrOverlap
	}
	var out Rotated
	err := s.change(func(records []record) ([]record, error) {
		secret, next := newRecord(name, o.Expires, "")
		i := lastLive(records, name, next.Created)
		if i < 0 {
			return nil, ErrNoPredecessor
		}
		before := &records[i].Token
		next.Scope = before.Scope
		if o.Scope != nil {
			next.Scope = *o.Scope
		}
		was := *before
		before.end(next.Created.Add(o.Overlap))
		out = Rotated{Secret: secret, Token: next.Token, Before: *before, was: was}
		return succeed(records, next), nil
	})
	if err != nil {
		return Rotated{}, err
	}
	return out, nil
}

// Undo revokes a successor that was given to no one, and the predecessor lives as long as without it.
// If the successor is already succeeded or revoked, the predecessor is not changed. Errors: ErrNoToken, or
// a failure of the store.
func (s *Store) Undo(r Rotated) error {
	return s.change(func(records []record) ([]record, error) {
		next, before := indexOf(records, r.ID), indexOf(records, r.Before.ID)
		if next < 0 {
			return nil, ErrNoToken
		}
		if before >= 0 && records[next].current() {
			records[before].Expires, records[before].Succeeded = r.was.Expires, r.was.Succeeded
		}
		if records[next].Revoked.IsZero() {
			records[next].Revoked = time.Now().UTC()
		}
		return records, nil
	})
}

func indexOf(records []record, id string) int {
	return slices.IndexFunc(records, func(r record) bool { return r.ID == id })
}

// end makes a token expire at last, unless it expires earlier.
func (t *Token) end(last time.Time) {
	if t.Expires.IsZero() || last.Before(t.Expires) {
		t.Expires = last
	}
}
