package library

import (
	"context"
	"errors"
	"fmt"

	"github.com/doorward/doorward/internal/base/store"
)

// Refusals of an act, which then has no effect.
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
	OpFile     = "file" // a file was added or changed, and its label may have moved by itself
	OpPut      = "put"
)

// Act is a change of the labels of a name.
type Act struct {
	Op      string `json:"op"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // in full; named by the operator or held by the file
	Label   string `json:"label,omitempty"`
	Moves   []Move `json:"moves"`
}

// Move is the move of one label of a name for one audience.
type Move struct {
	Variant string `json:"variant"` // document.Document.Variant
	From    string `json:"from"`    // a version; empty: none
	To      string `json:"to"`      // a version; empty: none
}

// Note makes the audit record of an act that is about to be committed. The record must be
// on disk before (store.Tx.Note). It may be called more than once, and must not keep the
// act. An act whose Note is nil, or returns nil, fails with store.ErrUnrecorded and has
// no effect.
type Note func(*Act) any

// Recorder writes the audit record of an act on the directory, which has no transaction,
// and returns when the record is on disk. A nil Recorder fails as a nil Note does.
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

// act runs an operator's change of a name, and notes it.
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
