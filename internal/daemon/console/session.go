package console

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

// Caller is the operator in whose name a session acts: the principal that ran `doorward ui`,
// and the processes above that command, in the form of peer.Ancestors.
type Caller struct {
	Who       *principal.Principal
	Processes []string
}

const (
	codeLife = time.Minute
	silence  = 12 * time.Hour // a session without acts ends after this time
	// Limits of sessions and codes; the oldest is removed to make room.
	mostSessions, mostCodes = 32, 16
)

// errCode refuses a code that is unknown, expired, or of another listener.
var errCode = errors.New("an invalid code")

// errSpent refuses a code that was used before: one of its two users is not the operator, so
// the session that it began is ended.
var errSpent = errors.New("a code that was used before; its session was ended")

type digest = [sha256.Size]byte

// book holds the codes and sessions. Of codes and cookies it keeps only digests.
type book struct {
	now  func() time.Time
	mono func() time.Duration // monotonic time

	mu       sync.Mutex
	codes    map[digest]*code
	sessions map[digest]*session
}

// code permits to begin one session.
type code struct {
	by       Caller
	listener string
	issued   instant
	began    *session // nil: not used yet
}

// session is one signed-in browser.
type session struct {
	key      digest
	by       Caller
	listener string
	program  string // program of the browser's connections; empty: unknown
	csrf     string
	over     chan struct{} // closed when the session ends

	// The fields below are guarded by book.mu.
	seen  instant
	flash string          // shown once, on the next page
	shown map[string]bool // paths of recorded pages that have a live part
}

func newBook(now func() time.Time) *book {
	began := time.Now()
	mono := func() time.Duration { return time.Since(began) }
	return &book{now: now, mono: mono, codes: make(map[digest]*code), sessions: make(map[digest]*session)}
}

// instant is a time by both clocks.
type instant struct {
	wall time.Time
	mono time.Duration
}

// at returns the present time.
func (b *book) at() instant { return instant{b.now(), b.mono()} }

// since returns the time that has passed since m, the longer one of the two clocks: the wall clock can be set back, and
// the monotonic one stops while the machine is suspended.
func (b *book) since(m instant) time.Duration { return max(b.now().Sub(m.wall), b.mono()-m.mono) }

func digestOf(secret string) digest { return sha256.Sum256([]byte(secret)) }

func (b *book) issue(by Caller, listener string) (text string, until time.Time) {
	text = rand.Text()
	issued := b.at()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep()
	if len(b.codes) >= mostCodes {
		delete(b.codes, oldest(b.codes, func(c *code) instant { return c.issued }))
	}
	b.codes[digestOf(text)] = &code{by: by, listener: listener, issued: issued}
	return text, issued.wall.Add(codeLife)
}

// waits reports whether there is a code for a listener that has not expired.
func (b *book) waits(listener string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep()
	for _, c := range b.codes {
		if c.listener == listener {
			return true
		}
	}
	return false
}

// redeem begins a session with a code, and returns the secret for its cookie.
func (b *book) redeem(text string, v Visit) (secret string, s *session, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep()
	c := b.codes[digestOf(text)]
	switch {
	case c == nil || c.listener != v.Listener:
		return "", nil, errCode
	case c.began != nil:
		b.end(c.began)
		return "", nil, errSpent
	}
	if len(b.sessions) >= mostSessions {
		b.end(b.sessions[oldest(b.sessions, func(s *session) instant { return s.seen })])
	}
	secret = rand.Text()
	s = &session{key: digestOf(secret), by: c.by, listener: v.Listener, program: v.Program, csrf: rand.Text(), over: make(chan struct{}), seen: b.at()}
	c.began, b.sessions[s.key] = s, s
	return secret, s, nil
}

// giveBack ends a session whose cookie was not sent, and makes its code valid again.
func (b *book) giveBack(text string, s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end(s)
	if c := b.codes[digestOf(text)]; c != nil && c.began == s {
		c.began = nil
	}
}

// find returns the session of a cookie on the session's listener, shown by the program that
// signed in; nil: none. A browser sends cookies to all ports of a host, so a server on another
// port may get this one: a cookie that another program shows was stolen, and ends the session.
// If the program of a request cannot be determined, the request has no session.
func (b *book) find(secret string, v Visit) *session {
	if secret == "" {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sessions[digestOf(secret)]
	switch {
	case s == nil || s.listener != v.Listener, v.Program == "" && s.program != "":
		return nil
	case b.since(s.seen) > silence, s.program != v.Program:
		b.end(s)
		return nil
	}
	return s
}

// touch notes an act of the operator, and returns the message for the next page.
func (b *book) touch(s *session) (flash string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.seen = b.at()
	flash, s.flash = s.flash, ""
	return flash
}

func (b *book) say(s *session, text string) {
	b.mu.Lock()
	s.flash = text
	b.mu.Unlock()
}

// shows notes that a page with a live part was recorded and shown.
func (b *book) shows(s *session, path string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.shown == nil {
		s.shown = make(map[string]bool)
	}
	s.shown[path] = true
}

func (b *book) wasShown(s *session, path string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return s.shown[path]
}

func (b *book) close(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end(s)
}

func (b *book) endAll() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.sessions)
	for _, s := range b.sessions {
		b.end(s)
	}
	clear(b.codes)
	return n
}

// end ends a session; a second call does nothing. The caller holds mu.
func (b *book) end(s *session) {
	if b.sessions[s.key] == s {
		delete(b.sessions, s.key)
		close(s.over)
	}
}

// sweep removes expired codes and sessions. The caller holds mu.
func (b *book) sweep() {
	maps.DeleteFunc(b.codes, func(_ digest, c *code) bool { return b.since(c.issued) >= codeLife })
	for _, s := range b.sessions {
		if b.since(s.seen) > silence {
			b.end(s)
		}
	}
}

func oldest[T any](all map[digest]T, at func(T) instant) (first digest) {
	var since time.Duration
	found := false
	for k, v := range all {
		if t := at(v).mono; !found || t < since {
			first, since, found = k, t, true
		}
	}
	return first
}
