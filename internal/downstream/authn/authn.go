// Package authn maps a connection, and its bearer token if there is one, to a
// principal. Every listener uses it, so an identity is decided in one place.
//
// Invariants: Authenticate returns either a valid principal or an error; there is no
// default user. An error about a token is for the operator, not for the caller, and
// contains no part of the token. Only digests of tokens are kept, and a presented token
// is compared with all digests in constant time. A token store that cannot be read and
// an issuer that cannot be reached authenticate no caller, and the operator is told
// why.
//
// On the Unix socket the kernel's credentials are the identity and a token is ignored.
// The exception is an agent that the daemon started: its token is accepted from its own
// process tree only, and a connection from that tree needs the token.
package authn

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/trust/principal"
)

// Options configures an Authenticator.
type Options struct {
	UID uint32 // the daemon's own user

	Env  secret.Value // DOORWARD_TOKEN from the environment; empty: none
	File string       // --token-file; empty: none
	// IDKey is the key for the ids of the tokens of Env and File: under one key a token
	// has the same id at every start. Each installation has its own. Empty: the ids are
	// valid for this Authenticator only.
	IDKey []byte
	// Store holds the tokens of `doorward token new`; nil: none.
	Store *Store
	// Spawned returns the started agent of an id while it runs, nil for any other id;
	// nil: there are no started agents.
	Spawned func(id string) *Spawned
	// OAuth verifies access tokens of an issuer; nil: none are accepted.
	OAuth *OAuth

	// OnProblem is called with text for the operator when a source of tokens
	// becomes unusable or, with over, usable again. It must not block, and the text never
	// contains a token.
	OnProblem func(text string, over bool)

	Now func() time.Time // nil: time.Now
}

// Authenticator decides the identities of callers. It is safe for concurrent use.
type Authenticator struct {
	uid     uint32
	now     func() time.Time
	problem func(text string, over bool)

	env    source
	file   tokenFile
	store  *Store
	stored storedTokens
	oauth  *OAuth
	spawns func(id string) *Spawned

	reload sync.Mutex // guards file and stored
	due    atomic.Int64
	table  atomic.Pointer[table]

	failures *limiter
	loopback loopbackCallers
}

// New makes an Authenticator and reads all sources once. It leaves out a source that
// cannot be used; Configured returns the reason.
func New(o Options) *Authenticator {
	a := &Authenticator{uid: o.UID, now: o.Now, problem: o.OnProblem, store: o.Store, oauth: o.OAuth, spawns: o.Spawned}
	if a.now == nil {
		a.now = time.Now
	}
	if a.problem == nil {
		a.problem = func(string, bool) {}
	}
	if a.spawns == nil {
		a.spawns = func(string) *Spawned { return nil }
	}
	a.file.path, a.file.namer = o.File, newNamer(o.IDKey)
	a.env = envSource(o.Env, a.file.namer)
	if a.oauth != nil && a.env.cred != nil && looksLikeJWT(strings.TrimSpace(o.Env.Reveal())) {
		a.env = source{problem: EnvToken + " has the form of an access token (JWT): with oauth, only tokens of the issuer are accepted in this form"}
	}
	a.failures = newLimiter()
	a.loopback = newLoopbackCallers(o.UID)
	a.look(a.now())
	return a
}

// Authenticate returns the principal of a request. authorization holds all values
// of the request's Authorization header. The error is ErrUnauthenticated,
// ErrTooMany, ErrMalformed or ErrUnverifiable, by errors.Is.
//
//	Unix socket, our own user       uid:N; the header is ignored, unless it holds
//	                                a started agent's token, which is refused here
//	the same, below a started agent spawn:ID with its token, otherwise refused
//	TCP, a token enforced           exactly one bearer token that is stored here,
//	                                or that is verified as the issuer's
//	loopback, not enforced          loopback:uid=N, or loopback:unknown where
//	                                the system cannot tell; a caller that
//	                                presents a token must present a valid one
func (a *Authenticator) Authenticate(c *Caller, authorization []string) (*principal.Principal, error) {
	return a.AuthenticateFor(c, netip.Addr{}, authorization)
}

// AuthenticateFor is Authenticate for a request that a trusted proxy forwarded for a
// client at that address: failures are counted for the client. The address is claimed,
// and nothing else depends on it.
func (a *Authenticator) AuthenticateFor(c *Caller, client netip.Addr, authorization []string) (*principal.Principal, error) {
	switch {
	case c == nil:
		return nil, ErrUnauthenticated
	case c.Spawn != "":
		return a.spawned(c, authorization)
	case c.Unix != nil && showsSpawnToken(authorization):
		a.failures.invalid.Add(1)
		return nil, ErrUnauthenticated
	case c.Unix != nil, len(authorization) == 0 && c.Loopback && !c.Enforce:
		return a.connection(c)
	}
	return a.token(c, client, authorization)
}

// connection returns the principal of the connection itself and keeps it from the first
// request on.
func (a *Authenticator) connection(c *Caller) (*principal.Principal, error) {
	if p := c.who.Load(); p != nil {
		return sameProgram(p)
	}
	p := a.whoConnected(c)
	if !p.Valid() {
		return nil, ErrUnauthenticated
	}
	c.who.Store(p)
	return p, nil
}

func (a *Authenticator) token(c *Caller, client netip.Addr, authorization []string) (*principal.Principal, error) {
	now := a.now()
	a.refresh(now)
	token, ok := bearer(authorization)
	if !ok {
		a.failures.missing.Add(1)
		if len(authorization) > 1 {
			return nil, ErrMalformed
		}
		return nil, ErrUnauthenticated
	}
	digest := digestOf(token)
	if a.oauth != nil && looksLikeJWT(token) {
		return a.accessToken(c, client, token, digest, now)
	}
	t := a.table.Load()
	if s := c.seen.Load(); s != nil && subtle.ConstantTimeCompare(s.digest[:], digest[:]) == 1 {
		if cred := s.in(t); cred != nil && cred.holds(now) {
			if s.table != t {
				c.seen.Store(&seen{t, digest, cred})
			}
			return cred.principal(c.Loopback), nil
		}
	}
	return a.unseen(c, sourceOf(c, client, kindOf(token)), t, digest, now)
}

// unseen checks a token that this connection did not present before. From a source that
// failed too often, it accepts only tokens that Doorward made, which cannot be guessed.
func (a *Authenticator) unseen(c *Caller, src origin, t *table, digest [sha256.Size]byte, now time.Time) (*principal.Principal, error) {
	wait := a.failures.take(src, now)
	cred := t.match(&digest)
	if cred == nil && wait == 0 {
		t = a.refreshSooner(now)
		cred = t.match(&digest)
	}
	switch {
	case wait > 0 && (cred == nil || !cred.made || !cred.holds(now)):
		return nil, a.tooMany(wait)
	case cred == nil || !cred.holds(now):
		a.failures.invalid.Add(1)
		return nil, ErrUnauthenticated
	case wait == 0:
		a.failures.refund(src, now)
	}
	c.seen.Store(&seen{t, digest, cred})
	return cred.principal(c.Loopback), nil
}

func (a *Authenticator) tooMany(wait time.Duration) error {
	a.failures.limited.Add(1)
	return &TooManyError{Wait: wait}
}

// Unjudged charges the source of a request whose session token cannot be judged now, as
// it does for a wrong token, so that the rate of guesses stays bounded meanwhile.
// client is as in AuthenticateFor. The error is an ErrTooMany.
func (a *Authenticator) Unjudged(c *Caller, client netip.Addr) error {
	if wait := a.failures.take(sourceOf(c, client, kindSession), a.now()); wait > 0 {
		return a.tooMany(wait)
	}
	a.failures.invalid.Add(1)
	return nil
}

// accessToken checks a token of the issuer. From a source that failed too often, a token is checked with the known
// keys only: it cannot be guessed, and other callers at the same source must not lock its holder out. A failure to
// reach the issuer is not charged to the source.
func (a *Authenticator) accessToken(c *Caller, client netip.Addr, token string, digest [sha256.Size]byte, now time.Time) (*principal.Principal, error) {
	if p := a.oauth.known(digest, c.Loopback, now); p != nil {
		return p, nil
	}
	src := sourceOf(c, client, kindAccess)
	wait := a.failures.take(src, now)
	p, err := a.oauth.verify(token, digest, c.Loopback, now, wait == 0)
	switch {
	case err != nil && wait > 0:
		return nil, a.tooMany(wait)
	case wait == 0 && (err == nil || errors.Is(err, ErrUnverifiable)):
		a.failures.refund(src, now)
	case err != nil:
		a.failures.invalid.Add(1)
	}
	return p, err
}

// Holds reports whether the proof of p is still valid: a token that is neither revoked,
// expired nor replaced; for OAuth, any access token that proves the same principal and
// has not expired. For local callers it is always true, because their connection is the
// proof. Open streams should call it every few seconds.
func (a *Authenticator) Holds(p *principal.Principal) bool {
	if !p.Valid() {
		return false
	}
	kind, rest, err := principal.Parse(p.Name())
	if kind == principal.KindSpawn {
		return a.spawnHolds(p, rest)
	}
	if kind == principal.KindOAuth {
		return a.oauth != nil && a.oauth.live(p, a.now())
	}
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
	Invalid uint64 // an unknown, revoked or expired token, or an access token that was refused
	Limited uint64 // not compared: the source failed too often
}

// Failures returns the counts.
func (a *Authenticator) Failures() Failures {
	return Failures{a.failures.missing.Load(), a.failures.invalid.Load(), a.failures.limited.Load()}
}
