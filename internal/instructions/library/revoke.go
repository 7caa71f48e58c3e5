package library

import (
	"context"
	"fmt"
)

// Revoke withdraws a version permanently, or with "" the whole name until the next
// Promote. If the version was production, its audience gets no document of that name
// until a Promote or a Rollback. Errors: ErrUnknown, ErrAmbiguous, ErrRevoked, ErrRemote.
func (l *Library) Revoke(ctx context.Context, name, version string, note Note) (*Act, error) {
	return l.act(ctx, note, Act{Op: OpRevoke, Name: name}, func(p *page, a *Act) error {
		if version == "" {
			return p.withdraw(a)
		}
		return p.revoke(a, version)
	})
}

func (p *page) withdraw(a *Act) error {
	n, err := p.Exec(`UPDATE instruct_variants SET state = 'withdrawn' WHERE installation = ?1 AND name = ?2`, p.l.o.Installation, a.Name)
	switch {
	case err != nil:
		return fmt.Errorf("withdrawing a name: %w", err)
	case n == 0:
		return ErrUnknown
	}
	return p.unlabel(a, "")
}

func (p *page) revoke(a *Act, version string) error {
	r, err := p.resolve(a.Name, version)
	switch {
	case err != nil:
		return err
	case r.revoked != 0:
		return ErrRevoked
	}
	a.Version = r.version
	_, err = p.Exec(`UPDATE instruct_versions SET revoked_at = ?4 WHERE installation = ?1 AND name = ?2 AND version = ?3`,
		p.l.o.Installation, a.Name, r.version, p.Now())
	if err != nil {
		return fmt.Errorf("revoking a version: %w", err)
	}
	_, err = p.Exec(`DELETE FROM instruct_productions WHERE installation = ?1 AND name = ?2 AND version = ?3`,
		p.l.o.Installation, a.Name, r.version)
	if err != nil {
		return fmt.Errorf("forgetting what a revoked version was: %w", err)
	}
	if err := p.unlabel(a, r.version); err != nil {
		return err
	}
	for _, m := range a.Moves {
		_, err := p.Exec(`UPDATE instruct_variants SET state = 'held' WHERE installation = ?1 AND name = ?2 AND variant = ?3 AND state = 'open'`,
			p.l.o.Installation, a.Name, m.Variant)
		if err != nil {
			return fmt.Errorf("holding a name: %w", err)
		}
	}
	return nil
}

// unlabel removes all labels of a version, or with "" the production label of every
// audience, and adds the production labels among them to the moves.
func (p *page) unlabel(a *Act, version string) error {
	const gone = ` FROM instruct_labels WHERE installation = ?1 AND name = ?2 AND (version = ?3 OR ?3 = '' AND label = 'production')`
	err := p.Each(func(scan func(...any) error) error {
		var m Move
		var label string
		err := scan(&m.Variant, &label, &m.From)
		if label == Production {
			a.Moves = append(a.Moves, m)
		}
		return err
	}, `SELECT variant, label, version`+gone+` ORDER BY variant`, p.l.o.Installation, a.Name, version)
	if err != nil {
		return fmt.Errorf("reading labels: %w", err)
	}
	if _, err = p.Exec(`DELETE`+gone, p.l.o.Installation, a.Name, version); err != nil {
		return fmt.Errorf("taking labels away: %w", err)
	}
	return nil
}
