package library

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/doorward/doorward/internal/base/store"
)

// Refusals of an act. Nothing was done.
var (
	ErrUnknown   = errors.New("no such document, version or label")
	ErrAmbiguous = errors.New("it matches several versions")
	ErrRevoked   = errors.New("that version was revoked")
	ErrWithdrawn = errors.New("the name was revoked: promote a version of it")
	ErrAbsent    = errors.New("no file in the instruction directory has that name and audience")
	ErrNoEarlier = errors.New("there is no earlier production version")
	ErrDamaged   = errors.New("its content in the database cannot be opened")
	ErrLabel     = errors.New("a label has up to 63 of a-z, 0-9, dot, dash and underscore, and is not like a version")
	ErrRemote    = errors.New("the documents come from another Doorward: they can only be changed there")
	ErrNowhere   = errors.New("no instruction directory is configured")
)

// The operations of an Act.
const (
	OpPromote  = "promote"
	OpRollback = "rollback"
	OpRevoke   = "revoke"
	OpFile     = "file" // a file came or changed, and its label may have moved by itself
	OpPut      = "put"
)

// Act is what was done to the labels of a name.
type Act struct {
	Op      string `json:"op"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // that the operator named or the file holds, in full
	Label   string `json:"label,omitempty"`
	Moves   []Move `json:"moves"`
}

// Move is one label of a name for one audience.
type Move struct {
	Variant string `json:"variant"` // guide.Document.Variant
	From    string `json:"from"`    // a version; empty: none
	To      string `json:"to"`      // a version; empty: none
}

// Note makes, of what is about to be done, the audit record that must be on
// disk before (store.Tx.Note). It may be called more than once, and must not
// keep the act. An act whose Note is nil, or gives nil, fails with
// store.ErrUnrecorded and does nothing.
type Note func(*Act) any

// Recorder makes the audit record of an act on the directory, which has no
// transaction, and returns when the record is on disk. Nil fails as a nil Note
// does.
type Recorder func(*Act) error

func (p *page) note(note Note, a *Act) error {
	if note == nil {
		return store.ErrUnrecorded
	}
	record := note(a)
	if record == nil {
		return store.ErrUnrecorded
	}
	p.Note(record)
	return nil
}

// act runs what an operator does to a name, and notes it.
func (l *Library) act(ctx context.Context, note Note, a Act, job func(*page, *Act) error) (*Act, error) {
	if l.remote != nil {
		return nil, ErrRemote
	}
	var out *Act
	err := l.write(ctx, func(p *page) error {
		done := a
		if err := job(p, &done); err != nil {
			return err
		}
		out = &done
		return p.note(note, &done)
	}, func() {})
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", a.Op, a.Name, err)
	}
	return out, nil
}

// Promote gives a label, "" for production, to the version that the prefix
// means, or with "" to what the directory holds of each audience. Only that
// ends a Revoke. Errors: ErrLabel, ErrUnknown, ErrAmbiguous, ErrRevoked,
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
	// Versions of the name that were not promoted were withdrawn with it and stay
	// away.
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

// targets are the versions that a promote means: one by its prefix, or what
// there is of each audience that has a file.
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

// sound refuses a version whose content is lost.
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
