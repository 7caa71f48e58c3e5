package library

import (
	"context"
	"fmt"
	"math"
)

// Rollback undoes the last act that made a version of a name production: each audience
// that the act moved gets its earlier production version. It can be repeated. A version
// that was revoked meanwhile is skipped, and the production version before it is taken.
// Errors: ErrUnknown, ErrWithdrawn, ErrAbsent, ErrNoEarlier, ErrDamaged, ErrRemote.
func (l *Library) Rollback(ctx context.Context, name string, note Note) (*Act, error) {
	return l.act(ctx, note, Act{Op: OpRollback, Name: name, Label: Production}, func(p *page, a *Act) error {
		last, err := p.last(name)
		if err != nil {
			return err
		}
		for _, b := range last {
			if err := p.goBack(b); err != nil {
				return err
			}
			a.Moves = append(a.Moves, Move{b.variant, b.from, b.to.version})
		}
		return nil
	})
}

// back is a step back for one key.
type back struct {
	key
	act  int64 // the act that is undone; the maximum for a key without production
	from string
	to   production
}

// production is one entry of the stack of production versions.
type production struct {
	act     int64
	version string
}

// last returns the steps back from the last act of a name.
func (p *page) last(name string) (out []back, err error) {
	r, err := read(p.Tx, p.l.o.Installation, func(edition) bool { return true })
	if err != nil {
		return nil, err
	}
	known, present := false, false
	for _, k := range r.book.keys() {
		s := r.book[k]
		if k.name != name {
			continue
		}
		if known = true; s.state == stateWithdrawn {
			return nil, ErrWithdrawn
		}
		if !(held{p.l}).isPresent(k) {
			continue
		}
		present = true
		b, ok, err := p.way(k, s)
		if err != nil {
			return nil, err
		}
		if ok && len(out) > 0 && b.act > out[0].act {
			out = nil
		}
		if ok && (len(out) == 0 || b.act == out[0].act) {
			out = append(out, b)
		}
	}
	switch {
	case !known:
		return nil, ErrUnknown
	case !present:
		return nil, ErrAbsent
	case len(out) == 0:
		return nil, ErrNoEarlier
	}
	return out, nil
}

// way returns the step back of one key.
func (p *page) way(k key, s *shelf) (b back, ok bool, err error) {
	b = back{key: k, from: s.labels[Production], act: math.MaxInt64}
	var was []production
	err = p.Each(func(scan func(...any) error) error {
		var x production
		err := scan(&x.act, &x.version)
		was = append(was, x)
		return err
	}, `SELECT act, version FROM instruct_productions WHERE installation = ?1 AND name = ?2 AND variant = ?3 ORDER BY act DESC`,
		p.l.o.Installation, k.name, k.variant)
	if err != nil {
		return b, false, fmt.Errorf("reading what was production: %w", err)
	}
	if len(was) > 0 && b.from != "" {
		b.act = was[0].act
	}
	for _, x := range was {
		if x.version != b.from {
			b.to = x
			return b, true, nil
		}
	}
	return b, false, nil
}

func (p *page) goBack(b back) error {
	if err := p.sound(edition{b.name, b.to.version}); err != nil {
		return err
	}
	_, err := p.Exec(`DELETE FROM instruct_productions WHERE installation = ?1 AND name = ?2 AND variant = ?3 AND act > ?4`,
		p.l.o.Installation, b.name, b.variant, b.to.act)
	if err != nil {
		return fmt.Errorf("taking back what is production: %w", err)
	}
	if err := p.setLabel(b.key, Production, b.to.version); err != nil {
		return err
	}
	return p.setState(b.key, stateOpen)
}
