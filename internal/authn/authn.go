// Package authn turns what is known of a connection, and a bearer token where
// there is one, into a principal. It exists so that there is one place that
// says who somebody is, and one answer for everybody else.
//
// Invariants: Authenticate gives a valid principal or an error, never both and
// never neither; there is no default user (threats.md R7). An error says
// nothing about what was wrong. Only digests of tokens are kept, and a
// presented token is compared with all of them in constant time. A token store
// that cannot be read authenticates nobody, and the operator hears why (R8).
//
// On the Unix socket the kernel's word is the identity and a token is ignored.
package authn

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/principal"
	"github.com/doorward/doorward/internal/secret"
)

var (
	// ErrUnauthenticated is the one answer to everybody who is nobody: 401.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrTooMany: this source failed too often; ask again after RetryAfter: 429.
	ErrTooMany = errors.New("too many failed authentications")
)

// Caller is what is known of one connection. The fields are set once, before
// the first Authenticate; a Caller belongs to one connection, for it remembers
// who that turned out to be.
type Caller struct {
	Unix     *peer.Credentials // the Unix socket's peer; nil on TCP
	Loopback bool              // TCP: the listener is a loopback one
	Enforce  bool              // TCP: the listener asks for a token
	Listener string            // the listener's address, to tell sources apart

	// OwnerUID is the uid that owns a loopback caller's socket, by the
	// kernel's table, when OwnerKnown. Observed: it refuses, never admits. On
	// a listener that asks for a token it only tells failing callers apart.
	OwnerUID   uint32
	OwnerKnown bool

	Remote netip.Addr // TCP: where the caller comes from

	who  atomic.Pointer[principal.Principal] // who the connection itself is
	seen atomic.Pointer[seen]                // the token presented last
}

// seen is a token that was accepted on this connection, by its digest.
type seen struct {
	table  *table
	digest [sha256.Size]byte
	cred   *credential
}

// Options configure an Authenticator.
type Options struct {
	UID uint32 // the daemon's own user

	Env  secret.Value // DOORWARD_TOKEN as it was found; empty: none
	File string       // --token-file; empty: none
	// Store holds the tokens of `doorward token new`; nil: none.
	Store *Store

	// OnProblem hears operator text when a source of tokens becomes unusable
	// or usable again. It must not block and never hears a token.
	OnProblem func(text string)

	Now func() time.Time // nil: time.Now
}

// Authenticator decides who callers are. Its methods may be called at once
// from many goroutines.
type Authenticator struct {
	uid     uint32
	now     func() time.Time
	problem func(string)

	env    source
	file   tokenFile
	store  *Store
	stored storedTokens

	reload sync.Mutex // guards file and stored
	due    atomic.Int64
	table  atomic.Pointer[table]

	failures limiter
	loopback loopbackCallers
}

// New makes an Authenticator and reads all sources once. A source that is not
// usable is left out; Configured says why.
func New(o Options) *Authenticator {
	a := &Authenticator{uid: o.UID, now: o.Now, problem: o.OnProblem, store: o.Store}
	if a.now == nil {
		a.now = time.Now
	}
	if a.problem == nil {
		a.problem = func(string) {}
	}
	a.env = envSource(o.Env)
	a.file.path = o.File
	a.failures.buckets = map[string]*bucket{}
	a.loopback = newLoopbackCallers(o.UID)
	now := a.now()
	a.look(now)
	a.due.Store(now.Add(lookEvery).UnixNano())
	return a
}

// Authenticate says who calls. authorization are all values of the request's
// Authorization header. The error is ErrUnauthenticated or ErrTooMany.
//
//	Unix socket, our own user       uid:N; the header is ignored
//	TCP, a token enforced           exactly one bearer token that we know
//	loopback, not enforced          loopback:uid=N, or loopback:unknown where
//	                                the system cannot tell; a caller that
//	                                presents a token must present a valid one
func (a *Authenticator) Authenticate(c *Caller, authorization []string) (*principal.Principal, error) {
	switch {
	case c == nil:
		return nil, ErrUnauthenticated
	case c.Unix != nil, len(authorization) == 0 && c.Loopback && !c.Enforce:
		return a.connection(c)
	}
	return a.token(c, authorization)
}

// connection gives the principal of the connection itself, made at its first
// request.
func (a *Authenticator) connection(c *Caller) (*principal.Principal, error) {
	if p := c.who.Load(); p != nil {
		return p, nil
	}
	p := a.whoConnected(c)
	if !p.Valid() {
		return nil, ErrUnauthenticated
	}
	c.who.Store(p)
	return p, nil
}

func (a *Authenticator) token(c *Caller, authorization []string) (*principal.Principal, error) {
	now := a.now()
	a.refresh(now)
	token, ok := bearer(authorization)
	if !ok {
		a.failures.missing.Add(1)
		return nil, ErrUnauthenticated
	}
	digest := digestOf(token)
	t := a.table.Load()
	if s := c.seen.Load(); s != nil && s.table == t && subtle.ConstantTimeCompare(s.digest[:], digest[:]) == 1 && s.cred.holds(now) {
		return s.cred.principal(c.Loopback), nil
	}
	return a.unseen(c, t, digest, now)
}

// unseen checks a token that this connection did not present before. A source
// that failed too often is not even compared.
func (a *Authenticator) unseen(c *Caller, t *table, digest [sha256.Size]byte, now time.Time) (*principal.Principal, error) {
	src := sourceOf(c)
	if !a.failures.take(src, now) {
		a.failures.limited.Add(1)
		return nil, ErrTooMany
	}
	cred := t.match(&digest)
	if cred == nil || !cred.holds(now) {
		a.failures.invalid.Add(1)
		return nil, ErrUnauthenticated
	}
	a.failures.refund(src, now)
	c.seen.Store(&seen{t, digest, cred})
	return cred.principal(c.Loopback), nil
}

// Holds reports whether what proved p still does: a token that is neither
// revoked, nor expired, nor rotated away. It is always so for local callers,
// whose connection is the proof. Ask every few seconds for open streams.
func (a *Authenticator) Holds(p *principal.Principal) bool {
	if !p.Valid() {
		return false
	}
	kind, _, err := principal.Parse(p.Name())
	if err != nil || kind != principal.KindToken {
		return err == nil
	}
	now := a.now()
	a.refresh(now)
	id, _ := p.Fact(factToken)
	return a.table.Load().live(id.Value, now)
}

// Failures counts failed authentications since the start.
type Failures struct {
	Missing uint64 // no Authorization header, several, or not a bearer token
	Invalid uint64 // an unknown, revoked or expired token
	Limited uint64 // not compared: the source failed too often
}

// Failures gives the counts.
func (a *Authenticator) Failures() Failures {
	return Failures{a.failures.missing.Load(), a.failures.invalid.Load(), a.failures.limited.Load()}
}
