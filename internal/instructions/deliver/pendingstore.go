package deliver

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/instructions/session"
)

// Stored is the part of delivery that lives in the database.
type Stored struct {
	Shelf    *library.Library
	Sessions *session.Keeper
}

// late is a store that is opened after the server has begun, because its database is
// unavailable. Until then there are no documents, session tokens cannot be verified, and
// every method that needs the store returns ErrStore. It implements Library and Keeper,
// so that the server needs no other code after.
type late struct {
	none  *document.Set
	state atomic.Pointer[library.State]
	there atomic.Pointer[Stored]

	again sync.Once
	begin chan struct{} // closed when listens with an unverified token have to be opened again
}

// newLate returns a store that is not open yet. If none is wanted, its state is unused.
func newLate(wanted bool, now time.Time) *late {
	none, _ := document.NewSet(nil)
	l := &late{none: none, begin: make(chan struct{})}
	l.state.Store(&library.State{OK: !wanted, Unused: !wanted, Since: now})
	return l
}

// wait returns the error of an operation that needs the store.
func (l *late) wait(what string) error {
	return fmt.Errorf("%s: %w", what, ErrStore)
}

func (l *late) Ready(ctx context.Context) error {
	if st := l.there.Load(); st != nil {
		return st.Shelf.Ready(ctx)
	}
	return l.wait("waiting for the first scan of the instructions")
}

func (l *late) Set() (*document.Set, library.State) {
	if st := l.there.Load(); st != nil {
		return st.Shelf.Set()
	}
	return l.none, *l.state.Load()
}

func (l *late) Lookup(name, ref string) ([]*document.Document, error) {
	if st := l.there.Load(); st != nil {
		return st.Shelf.Lookup(name, ref)
	}
	return nil, l.wait("looking up a version")
}

func (l *late) Deliver(ctx context.Context, d library.Delivery) error {
	if st := l.there.Load(); st != nil {
		return st.Shelf.Deliver(ctx, d)
	}
	return l.wait("counting a delivery")
}

func (l *late) Check(token string, c session.Caller) (*session.Session, error) {
	if st := l.there.Load(); st != nil {
		return st.Sessions.Check(token, c)
	}
	return nil, l.wait("checking a session")
}

func (l *late) Find(id string) (session.Session, bool) {
	if st := l.there.Load(); st != nil {
		return st.Sessions.Find(id)
	}
	return session.Session{}, false
}

func (l *late) Sessions() []session.Session {
	if st := l.there.Load(); st != nil {
		return st.Sessions.Sessions()
	}
	return nil
}

func (l *late) Done(id string) <-chan struct{} {
	if st := l.there.Load(); st != nil {
		return st.Sessions.Done(id)
	}
	over := make(chan struct{})
	close(over)
	return over
}

func (l *late) Issue(ctx context.Context, r session.Request, note session.Note) (string, *session.Session, error) {
	if st := l.there.Load(); st != nil {
		return st.Sessions.Issue(ctx, r, note)
	}
	return "", nil, l.wait("making a session")
}

func (l *late) Renew(ctx context.Context, s *session.Session, note session.Note) (string, *session.Session, error) {
	if st := l.there.Load(); st != nil {
		return st.Sessions.Renew(ctx, s, note)
	}
	return "", nil, l.wait("renewing a session")
}

func (l *late) End(ctx context.Context, id, reason string, note session.Note) (*session.Session, error) {
	if st := l.there.Load(); st != nil {
		return st.Sessions.End(ctx, id, reason, note)
	}
	return nil, l.wait("ending a session")
}

func (l *late) Stats() session.Stats {
	if st := l.there.Load(); st != nil {
		return st.Sessions.Stats()
	}
	return session.Stats{}
}
