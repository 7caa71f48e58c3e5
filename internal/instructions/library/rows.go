package library

import (
	"errors"
	"fmt"
	"strings"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/instructions/document"
)

const (
	// minPrefix is how many digits of a version an operator must give. A reader must give
	// minReader, so that it cannot guess a version.
	minPrefix = 4
	minReader = 12
)

// isLabel reports whether s can be a label. It cannot be a prefix of a version too.
func isLabel(s string) bool { return document.ValidName(s) && !isPrefix(s, minPrefix) }

// isPrefix reports whether s can be a version or its prefix of at least so many digits.
func isPrefix(s string, digits int) bool {
	return len(s) >= digits && len(s) <= 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// row is a row of a version, without its content. Times are milliseconds; 0 means never.
type row struct {
	name, variant, version  string
	number, bytes           int64
	seen, labelled, revoked int64
}

func (r row) key() key         { return key{r.name, r.variant} }
func (r row) edition() edition { return edition{r.name, r.version} }

const selectRow = `SELECT name, variant, version, number, bytes, seen_at, labelled_at, revoked_at FROM instruct_versions WHERE installation = ?1 `

func (r *row) places() []any {
	return []any{&r.name, &r.variant, &r.version, &r.number, &r.bytes, &r.seen, &r.labelled, &r.revoked}
}

// selectRows returns the versions that match a condition, by name, newest first.
func selectRows(tx *store.Tx, where string, args ...any) (out []row, err error) {
	err = tx.Each(func(scan func(...any) error) error {
		var r row
		err := scan(r.places()...)
		out = append(out, r)
		return err
	}, selectRow+where+` ORDER BY name, number DESC, version`, args...)
	if err != nil {
		return nil, fmt.Errorf("reading versions: %w", err)
	}
	return out, nil
}

// matching returns the versions of a name that begin with a prefix.
func matching(tx *store.Tx, installation, name, prefix string) ([]row, error) {
	// "g" sorts after every digit of a version.
	return selectRows(tx, `AND name = ?2 AND version >= ?3 AND version < ?4`, installation, name, prefix, prefix+"g")
}

func (p *page) rows(name string) ([]row, error) {
	return selectRows(p.Tx, `AND name = ?2`, p.l.o.Installation, name)
}

func (p *page) row(e edition) (r row, err error) {
	err = p.Row(r.places(), selectRow+`AND name = ?2 AND version = ?3`, p.l.o.Installation, e.name, e.version)
	if err != nil {
		err = fmt.Errorf("reading a version: %w", err)
	}
	return r, err
}

// resolve returns the only version with a prefix.
func (p *page) resolve(name, prefix string) (row, error) {
	if !isPrefix(prefix, minPrefix) {
		return row{}, ErrUnknown
	}
	found, err := matching(p.Tx, p.l.o.Installation, name, prefix)
	switch {
	case err != nil:
		return row{}, err
	case len(found) == 0:
		return row{}, ErrUnknown
	case len(found) > 1:
		return row{}, ErrAmbiguous
	}
	return found[0], nil
}

func (p *page) setState(k key, state string) error {
	_, err := p.Exec(`UPDATE instruct_variants SET state = ?4 WHERE installation = ?1 AND name = ?2 AND variant = ?3`,
		p.l.o.Installation, k.name, k.variant, state)
	if err != nil {
		return fmt.Errorf("marking a name as %s: %w", state, err)
	}
	return nil
}

// label sets a label to a version, and returns the version that had it before. A new
// production version is pushed on the stack of production versions.
func (p *page) label(k key, label, version string) (from string, err error) {
	err = p.Row([]any{&from}, `SELECT version FROM instruct_labels WHERE installation = ?1 AND name = ?2 AND variant = ?3 AND label = ?4`,
		p.l.o.Installation, k.name, k.variant, label)
	if err != nil && !errors.Is(err, store.ErrNoRow) {
		return "", fmt.Errorf("reading a label: %w", err)
	}
	if from == version {
		return from, nil
	}
	if err := p.setLabel(k, label, version); err != nil || label != Production {
		return from, err
	}
	return from, p.push(k, version)
}

func (p *page) setLabel(k key, label, version string) error {
	_, err := p.Exec(`INSERT INTO instruct_labels (installation, name, variant, label, version, moved_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
		ON CONFLICT (installation, name, variant, label) DO UPDATE SET version = excluded.version, moved_at = excluded.moved_at`,
		p.l.o.Installation, k.name, k.variant, label, version, p.Now())
	if err != nil {
		return fmt.Errorf("moving a label: %w", err)
	}
	_, err = p.Exec(`UPDATE instruct_versions SET labelled_at = ?4
		WHERE installation = ?1 AND name = ?2 AND version = ?3 AND labelled_at = 0`, p.l.o.Installation, k.name, version, p.Now())
	if err != nil {
		return fmt.Errorf("marking a version: %w", err)
	}
	return nil
}

// history is how many times a rollback can be repeated.
const history = 100

// push records a new production version.
func (p *page) push(k key, version string) error {
	if p.acts[k.name] == 0 {
		var last int64
		err := p.Row([]any{&last}, `SELECT COALESCE(max(act), 0) FROM instruct_productions WHERE installation = ?1 AND name = ?2`,
			p.l.o.Installation, k.name)
		if err != nil {
			return fmt.Errorf("numbering an act: %w", err)
		}
		p.acts[k.name] = last + 1
	}
	_, err := p.Exec(`INSERT INTO instruct_productions (installation, name, variant, act, version, moved_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)`,
		p.l.o.Installation, k.name, k.variant, p.acts[k.name], version, p.Now())
	if err != nil {
		return fmt.Errorf("noting what is production: %w", err)
	}
	if p.acts[k.name] <= history {
		return nil
	}
	_, err = p.Exec(`DELETE FROM instruct_productions WHERE installation = ?1 AND name = ?2 AND variant = ?3 AND act NOT IN (
		SELECT act FROM instruct_productions WHERE installation = ?1 AND name = ?2 AND variant = ?3 ORDER BY act DESC LIMIT ?4)`,
		p.l.o.Installation, k.name, k.variant, history+1)
	if err != nil {
		return fmt.Errorf("forgetting what was production long ago: %w", err)
	}
	return nil
}
