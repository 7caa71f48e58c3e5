package library

import (
	"context"
	"fmt"
	"slices"
)

// Promote sets a label, "" for production, to the version with a prefix, or with "" to
// the version that the directory holds for each audience. Only a promotion ends the
// withdrawal of a name. Errors: ErrLabel, ErrUnknown, ErrAmbiguous, ErrRevoked,
// ErrAbsent, ErrDamaged, ErrRemote.
func (l *Library) Promote(ctx context.Context, name, version, label string, note Note) (*Act, error) {
	if label == "" {
		label = Production
	}
	if !isLabel(label) {
		return nil, ErrLabel
	}
	return l.act(ctx, note, Act{Op: OpPromote, Name: name, Label: label}, func(p *page, a *Act) error {
		targets, err := p.targets(name, version)
		if err != nil {
			return err
		}
		if version != "" {
			a.Version = targets[0].version
		}
		return p.promote(a, targets)
	})
}

func (p *page) promote(a *Act, targets []row) error {
	for _, t := range targets {
		if err := p.sound(t.edition()); err != nil {
			return err
		}
		from, err := p.label(t.key(), a.Label, t.version)
		if err != nil {
			return err
		}
		if from != t.version {
			a.Moves = append(a.Moves, Move{t.variant, from, t.version})
		}
	}
	if a.Label != Production {
		return nil
	}
	// Variants of the name that are not promoted were withdrawn with it and stay
	// unavailable.
	_, err := p.Exec(`UPDATE instruct_variants SET state = 'held' WHERE installation = ?1 AND name = ?2 AND state = 'withdrawn'`,
		p.l.o.Installation, a.Name)
	if err != nil {
		return fmt.Errorf("ending the withdrawal: %w", err)
	}
	for _, t := range targets {
		if err := p.setState(t.key(), stateOpen); err != nil {
			return err
		}
	}
	return nil
}

// targets returns the versions that a promotion is about: one by its prefix, or the
// present one of each audience that has a file.
func (p *page) targets(name, version string) ([]row, error) {
	if version != "" {
		r, err := p.resolve(name, version)
		switch {
		case err != nil:
			return nil, err
		case r.revoked != 0:
			return nil, ErrRevoked
		case !held{p.l}.isPresent(r.key()):
			return nil, ErrAbsent
		}
		return []row{r}, nil
	}
	all, err := p.rows(name)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, ErrUnknown
	}
	var out []row
	err = ErrAbsent
	for _, k := range (held{p.l}).presentKeys(name) {
		i := slices.IndexFunc(all, func(r row) bool { return r.key() == k && r.version == held{p.l}.current(k) })
		if i < 0 { // its file cannot be used now
			i = slices.IndexFunc(all, func(r row) bool { return r.key() == k && r.revoked == 0 })
		}
		switch {
		case i < 0:
		case all[i].revoked != 0:
			err = ErrRevoked
		default:
			out = append(out, all[i])
		}
	}
	if len(out) == 0 {
		return nil, err
	}
	return out, nil
}

// sound refuses a version whose content cannot be opened.
func (p *page) sound(e edition) error {
	if (held{p.l}).has(e) {
		return nil
	}
	sealed, err := sealedContent(p.Tx, p.l.o.Installation, e)
	if err != nil {
		return fmt.Errorf("reading a document: %w", err)
	}
	if _, _, err := p.l.open(e, sealed); err != nil {
		return fmt.Errorf("%w: it %w", ErrDamaged, err)
	}
	return nil
}
