package session

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/trust/visible"
)

const (
	maxName   = 1024 // bytes of a subject
	maxClient = 128
	maxBind   = 128
	maxMaker  = 128
)

// Issue makes a session and its first token.
//
// Errors: ErrRequest, ErrTooMany, or one of the store; there is no session then.
func (k *Keeper) Issue(ctx context.Context, r Request, note Note) (token string, s *Session, err error) {
	r, err = admit(r)
	if err != nil {
		return "", nil, err
	}
	if err := k.room(r.Subject); err != nil {
		return "", nil, err
	}
	sid, now := newSID(), k.o.Now()
	e := newEntry(Session{ID: digestOf(sid).session(), Subject: r.Subject, Scope: r.Scope, Project: r.Project, Client: r.Client,
		CI: r.CI, Bind: r.Bind, Maker: r.Maker, Issued: time.Unix(now.Unix(), 0).UTC()}, r.TTL)
	g := e.grant(sid, now)
	token, err = k.tokens.claims(&e.Session, sid, g).write(k.ring.Load().newest())
	if err != nil {
		return "", nil, err
	}
	err = k.o.DB.Act(ctx, func(tx *store.Tx) error {
		if err := k.rows.insert(tx, e, g); err != nil {
			return err
		}
		return noted(tx, note, e.copy())
	})
	if err != nil {
		return "", nil, fmt.Errorf("making a session: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.add(e)
	k.count.add(func(s *Stats) { s.Issued++ })
	return token, e.copy(), nil
}

// grant adds a token to a session that is not published yet, and sets the session's end
// to the token's.
func (e *entry) grant(sid string, now time.Time) *grant {
	g := e.next(sid, now)
	e.grants = append(e.grants, g)
	e.Expires, e.RefreshAfter = e.times(g)
	return g
}

// next returns a new token of the session. It lives for one TTL from now, and ends at
// most MaxLife after the first token was issued. A fraction of a second is rounded up, so
// that a TTL is never shortened.
func (e *entry) next(sid string, now time.Time) *grant {
	end := now.Add(e.ttl + time.Second - time.Nanosecond).Unix()
	g := &grant{id: digestOf(sid), of: e, iat: now.Unix(), exp: min(end, e.Issued.Add(MaxLife).Unix())}
	g.until = time.Unix(g.exp, 0).Add(Tolerance)
	return g
}

// times returns the times of a session whose newest token is g.
func (e *entry) times(g *grant) (expires, refresh time.Time) {
	expires = time.Unix(g.exp, 0).UTC()
	return expires, refreshAfter(e.Issued, time.Unix(g.iat, 0).UTC(), expires)
}

// room refuses a session when too many are live. Sessions that are being made at this
// moment are not counted.
func (k *Keeper) room(subject string) error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.live[subject] >= k.limits.subject || k.alive >= k.limits.all {
		return ErrTooMany
	}
	return nil
}

// noted adds the record of an act to its transaction.
func noted(tx *store.Tx, note Note, s *Session) error {
	if note == nil {
		return store.ErrUnrecorded
	}
	record := note(s)
	if record == nil {
		return store.ErrUnrecorded
	}
	tx.Note(record)
	return nil
}

// admit checks a request and normalises it.
func admit(r Request) (Request, error) {
	scope := slices.Clone(r.Scope)
	slices.Sort(scope)
	r.Scope = slices.Compact(scope)
	r.Client = line(r.Client, maxClient)
	if r.TTL == 0 {
		r.TTL = MaxLife
	}
	switch {
	case r.Subject == "" || len(r.Subject) > maxName || !visible.AllPrintable(r.Subject):
		return r, fmt.Errorf("%w: its subject is not a principal", ErrRequest)
	case len(r.Scope) == 0 || slices.ContainsFunc(r.Scope, func(s string) bool { return s != Behavioural && s != Structural }):
		return r, fmt.Errorf("%w: a scope is of %s and %s", ErrRequest, Behavioural, Structural)
	case r.Project != "" && !protocol.ValidNamespace(r.Project):
		return r, fmt.Errorf("%w: a project is 1 to 63 of a-z 0-9 . _ - and begins with a letter or digit", ErrRequest)
	case len(r.Bind) > maxBind || !plain(r.Bind):
		return r, fmt.Errorf("%w: the value that it is bound to is not valid", ErrRequest)
	case len(r.Maker) > maxMaker || !plain(r.Maker):
		return r, fmt.Errorf("%w: the id of its credential is not valid", ErrRequest)
	case r.TTL < 0 || r.TTL > MaxLife:
		return r, fmt.Errorf("%w: its lifetime is at most %s", ErrRequest, MaxLife)
	}
	return r, nil
}

// plain reports whether s is printable ASCII without spaces.
func plain(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool { return c <= ' ' || c > '~' }) < 0
}

// line returns a claimed text in the form that is stored: one line of printable
// characters, cut at a character.
func line(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if !visible.Printable(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	return strings.TrimSpace(visible.Cut(s, limit))
}
