package authn

import "time"

// Rotation is how a token gets its successor.
type Rotation struct {
	Overlap time.Duration // how long the one before is still accepted
	Expires time.Duration // of the successor; 0: never
	Scope   *string       // of the successor; nil: as before
}

// Rotated is a successor, with what it succeeds.
type Rotated struct {
	Secret string // shown now, or never
	Token
	Before Token
}

// Rotate makes a token that succeeds the one of that name. Both are accepted
// until the overlap is over or the one before expires by itself. Errors:
// ErrNoPredecessor, ErrScope, ErrExpiry, ErrOverlap, or what is wrong with the
// store.
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
		before.end(next.Created.Add(o.Overlap))
		out = Rotated{Secret: secret, Token: next.Token, Before: *before}
		return succeed(records, next), nil
	})
	if err != nil {
		return Rotated{}, err
	}
	return out, nil
}

// end gives a token its end, no later than the one that it had.
func (t *Token) end(last time.Time) {
	if t.Expires.IsZero() || last.Before(t.Expires) {
		t.Expires = last
	}
}
