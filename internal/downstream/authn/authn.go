// Package authn turns what is known of a connection, and a bearer token where
// there is one, into a principal. Every listener uses it, so an identity is
// decided in one place.
//
// Invariants: Authenticate returns a valid principal or an error, never both and
// never neither; there is no default user. An error about a token is for the
// operator, not for the caller, and holds no part of the token. Only digests of
// tokens are kept, and a presented token is compared with all digests in constant
// time. A token store that cannot be read, and an issuer that cannot be reached,
// authenticate no caller, and the operator is told why.
//
// On the Unix socket the kernel's word is the identity and a token is ignored.
// The exception is an agent that the daemon started: its token counts from its
// own process tree only, and a connection from that tree needs the token.
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

// Options configure an Authenticator.
type Options struct {
	UID uint32 // the daemon's own user

	Env  secret.Value // DOORWARD_TOKEN as it was found; empty: none
	File string       // --token-file; empty: none
	// IDKey names the tokens of Env and File: under one key a token has one id
	// at every start. It is the installation's own. Empty: the ids are good for
	// this Authenticator alone.
	IDKey []byte
	// Store holds the tokens of `doorward token new`; nil: none.
	Store *Store
	// Spawned gives a started agent that runs now, nil for any other id; nil:
	// there are none.
	Spawned func(id string) *Spawned
	// OAuth verifies access tokens of an issuer; nil: none are accepted.
	OAuth *OAuth

	// OnProblem is called with text for the operator when a source of tokens
	// becomes unusable or usable again. It must not block, and the text never
	// contains a token.
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
	oauth  *OAuth
	spawns func(id string) *Spawned

	reload sync.Mutex // guards file and stored
	due    atomic.Int64
	table  atomic.Pointer[table]

	failures *limiter
	loopback loopbackCallers
}

// New makes an Authenticator and reads all sources once. A source that is not
// usable is left out; Configured says why.
func New(o Options) *Authenticator {
	a := &Authenticator{uid: o.UID, now: o.Now, problem: o.OnProblem, store: o.Store, oauth: o.OAuth, spawns: o.Spawned}
	if a.now == nil {
		a.now = time.Now
	}
	if a.problem == nil {
		a.problem = func(string) {}
	}
	if a.spawns == nil {
		a.spawns = func(string) *Spawned { return nil }
	}
	a.file.path, a.file.namer = o.File, newNamer(o.IDKey)
	a.env = envSource(o.Env, a.file.namer)
	if a.oauth != nil && a.env.cred != nil && looksLikeJWT(strings.TrimSpace(o.Env.Reveal())) {
		a.env = source{problem: EnvToken + " has the form of an access token: with oauth only the issuer's can be accepted in it"}
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

// AuthenticateFor is Authenticate for a request that a trusted proxy has passed
// on for a client at that address: its failures are the client's. The address
// is claimed, and nothing else depends on it.
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

// connection returns the principal of the connection itself, made at its first
// request.
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

// unseen checks a token that this connection did not present before. Of a
// source that failed too often only tokens that cannot be guessed count.
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

// Unjudged charges the source of a request for the token of a session that
// cannot be judged now, as for one that is not good, so that the rate of guesses
// is the same meanwhile. client is as for AuthenticateFor. Its error is an
// ErrTooMany.
func (a *Authenticator) Unjudged(c *Caller, client netip.Addr) error {
	if wait := a.failures.take(sourceOf(c, client, kindSession), a.now()); wait > 0 {
		return a.tooMany(wait)
	}
	a.failures.invalid.Add(1)
	return nil
}

// accessToken checks a token of the issuer. A source that failed too often is
// not even heard; that the issuer cannot be asked is not its failure.
func (a *Authenticator) accessToken(c *Caller, client netip.Addr, token string, digest [sha256.Size]byte, now time.Time) (*principal.Principal, error) {
	if p := a.oauth.known(digest, c.Loopback, now); p != nil {
		return p, nil
	}
	src := sourceOf(c, client, kindAccess)
	if wait := a.failures.take(src, now); wait > 0 {
		return nil, a.tooMany(wait)
	}
	p, err := a.oauth.verify(token, digest, c.Loopback, now)
	switch {
	case err == nil:
		a.failures.refund(src, now)
		return p, nil
	case errors.Is(err, ErrUnverifiable):
		a.failures.refund(src, now)
	default:
		a.failures.invalid.Add(1)
	}
	return nil, err
}

// Holds reports whether what proved p still does: a token that is neither
// revoked, nor expired, nor rotated away; of an issuer's, some access token
// that proves the same and has not expired. It is always so for local callers,
// whose connection is the proof. Ask every few seconds for open streams.
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
	Invalid uint64 // an unknown, revoked or expired token, or an access token that is not good
	Limited uint64 // not compared: the source failed too often
}

// Failures returns the counts.
func (a *Authenticator) Failures() Failures {
	return Failures{a.failures.missing.Load(), a.failures.invalid.Load(), a.failures.limited.Load()}
}
