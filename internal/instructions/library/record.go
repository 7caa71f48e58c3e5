package library

import (
	"context"
	"errors"
	"fmt"

	"github.com/doorward/doorward/internal/base/store"
)

// record stores documents that are new in the directory.
func (l *Library) record(ctx context.Context, changes []change, then func()) error {
	ctx, cancel := context.WithTimeout(ctx, dbTime)
	defer cancel()
	var done []*Act
	err := l.write(ctx, func(p *page) error {
		done = nil
		for _, c := range changes {
			a, err := p.enter(c)
			if err != nil {
				return fmt.Errorf("%s: %w", c.file, err)
			}
			if err := p.note(l.o.Entered, a); err != nil {
				return err
			}
			if len(a.Moves) > 0 {
				done = append(done, a)
			}
		}
		return nil
	}, func() {
		for _, c := range changes {
			l.seen[c.key] = c.doc.Version
		}
		then()
	})
	if err != nil {
		return err
	}
	for _, a := range done {
		m := a.Moves[0]
		l.o.Log.Info("instructions changed", "name", a.Name, "variant", m.Variant, "from", short(m.From), "to", short(m.To))
	}
	return nil
}

// enter stores one document, and makes it production if it may become that by itself.
func (p *page) enter(c change) (*Act, error) {
	a := &Act{Op: OpFile, Name: c.name, Version: c.doc.Version}
	if err := p.addVersion(c); err != nil {
		return nil, err
	}
	state, err := p.addVariant(c)
	if err != nil || !c.moved || p.l.o.Review || p.l.strange.Load() || state != stateOpen {
		return a, err
	}
	r, err := p.row(edition{c.name, c.doc.Version})
	if err != nil || r.revoked != 0 {
		return a, err
	}
	from, err := p.label(c.key, Production, c.doc.Version)
	if err == nil && from != c.doc.Version {
		a.Label, a.Moves = Production, []Move{{c.variant, from, c.doc.Version}}
	}
	return a, err
}

// addVersion inserts a content if it is new, and replaces one that could not be opened
// any more.
func (p *page) addVersion(c change) error {
	e := edition{c.name, c.doc.Version}
	sealed := p.l.seal.Seal(nil, nil, c.content, p.l.aad(e))
	if (held{p.l}).isDamaged(e) {
		_, err := p.Exec(`UPDATE instruct_versions SET content = ?4 WHERE installation = ?1 AND name = ?2 AND version = ?3`,
			p.l.o.Installation, e.name, e.version, sealed)
		if err != nil {
			return fmt.Errorf("sealing a version again: %w", err)
		}
	}
	var last int64
	err := p.Row([]any{&last}, `SELECT COALESCE(max(number), 0) FROM instruct_versions WHERE installation = ?1 AND name = ?2`,
		p.l.o.Installation, c.name)
	if err != nil {
		return fmt.Errorf("numbering a version: %w", err)
	}
	n, err := p.Exec(`INSERT INTO instruct_versions (installation, name, version, variant, number, bytes, seen_at, labelled_at, revoked_at, content)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, 0, ?8) ON CONFLICT (installation, name, version) DO NOTHING`,
		p.l.o.Installation, c.name, c.doc.Version, c.variant, last+1, len(c.content), p.Now(), sealed)
	if err != nil {
		return fmt.Errorf("entering a version: %w", err)
	}
	if n == 0 || last < versionsKept {
		return nil
	}
	return p.prune(c.name, last+1)
}

// versionsKept is how many versions a name keeps. Versions that have a label, can be
// rolled back to, are in the directory, or were revoked are kept in addition.
const versionsKept = 500

func (p *page) prune(name string, newest int64) error {
	_, err := p.Exec(`DELETE FROM instruct_versions WHERE installation = ?1 AND name = ?2 AND number <= ?3 AND revoked_at = 0
		AND version NOT IN (SELECT version FROM instruct_labels WHERE installation = ?1 AND name = ?2)
		AND version NOT IN (SELECT version FROM instruct_productions WHERE installation = ?1 AND name = ?2)
		AND version NOT IN (SELECT seen FROM instruct_variants WHERE installation = ?1 AND name = ?2)`,
		p.l.o.Installation, name, newest-versionsKept)
	if err != nil {
		return fmt.Errorf("forgetting old versions: %w", err)
	}
	return nil
}

// addVariant stores which version the directory holds now, and in which file. A new
// audience of a withdrawn name is withdrawn too.
func (p *page) addVariant(c change) (state string, err error) {
	state = stateOpen
	err = p.Row([]any{&state}, `SELECT state FROM instruct_variants WHERE installation = ?1 AND name = ?2 AND state = 'withdrawn' LIMIT 1`,
		p.l.o.Installation, c.name)
	if err != nil && !errors.Is(err, store.ErrNoRow) {
		return "", fmt.Errorf("reading the state of a name: %w", err)
	}
	err = p.Row([]any{&state}, `INSERT INTO instruct_variants (installation, name, variant, state, seen, file) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
		ON CONFLICT (installation, name, variant) DO UPDATE SET seen = excluded.seen, file = excluded.file RETURNING state`,
		p.l.o.Installation, c.name, c.variant, state, c.doc.Version, c.file)
	if err != nil {
		return "", fmt.Errorf("noting what the directory holds: %w", err)
	}
	_, err = p.Exec(`UPDATE instruct_variants SET file = '' WHERE installation = ?1 AND file = ?2 AND (name <> ?3 OR variant <> ?4)`,
		p.l.o.Installation, c.file, c.name, c.variant)
	if err != nil {
		return "", fmt.Errorf("noting what a file holds: %w", err)
	}
	return state, nil
}
