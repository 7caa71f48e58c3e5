package authn

import (
	"errors"
	"hash/maphash"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A source may fail burst times at once with tokens of one kind, and then once every
// refill. Beyond that rate, a token that a person chose is not compared at all, which
// bounds guessing. A token that Doorward made is still compared, and an access token is
// still checked: they cannot be guessed, and other callers at the same source must not
// lock their holders out.
const (
	burst      = 20
	refill     = time.Second
	maxSources = 4096
	maxShared  = 1024
)

// ErrTooMany means that this source failed too often (429). TooManyError holds the time
// to wait.
var ErrTooMany = errors.New("too many failed authentications")

// TooManyError is an ErrTooMany.
type TooManyError struct {
	Wait time.Duration // until the next token of this source is compared
}

func (e *TooManyError) Error() string { return ErrTooMany.Error() }

// RetryAfter returns Wait in whole seconds, rounded up.
func (e *TooManyError) RetryAfter() int { return int((e.Wait + time.Second - 1) / time.Second) }

// Is reports that the error is an ErrTooMany.
func (e *TooManyError) Is(target error) bool { return target == ErrTooMany }

// limiter holds a token bucket for each source. A source without failures has no
// bucket. Sources beyond maxSources share a fixed number of buckets, so that memory
// stays bounded under an attack from many addresses. The assignment is secret, so an
// attacker cannot aim at another source's bucket.
//
// Limit: callers with one source (one address, or one loopback listener and user) share
// its failures with tokens of the same kind. Meanwhile a correct chosen token is
// refused; accepting it would let it be guessed. A token that its connection has
// presented before is still accepted.
type limiter struct {
	mu      sync.Mutex
	buckets map[origin]*bucket
	seed    maphash.Seed
	swept   time.Time

	missing, invalid, limited atomic.Uint64
}

func newLimiter() *limiter {
	return &limiter{buckets: map[origin]*bucket{}, seed: maphash.MakeSeed()}
}

type bucket struct {
	used float64 // failures not yet forgiven
	last time.Time
}

// settle subtracts the failures that have been forgiven since last.
func (b *bucket) settle(now time.Time) {
	if passed := now.Sub(b.last); passed > 0 {
		b.used = max(0, b.used-float64(passed)/float64(refill))
	}
	b.last = now
}

// take charges a source for one attempt in advance, so that concurrent attempts cannot
// exceed the limit; refund undoes it after a success. If wait is not zero, nothing is
// charged.
func (l *limiter) take(src origin, now time.Time) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.of(src, now)
	b.settle(now)
	if over := b.used - (burst - 1); over > 0 {
		return max(1, time.Duration(over*float64(refill)))
	}
	b.used++
	return 0
}

func (l *limiter) refund(src origin, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[src]
	if b == nil {
		src = l.shared(src)
		if b = l.buckets[src]; b == nil {
			return
		}
	}
	b.settle(now)
	if b.used = max(0, b.used-1); b.used == 0 {
		delete(l.buckets, src)
	}
}

// shared returns the shared bucket of a source for which there was no room.
func (l *limiter) shared(src origin) origin {
	return origin{at: "shared " + strconv.FormatUint(maphash.Comparable(l.seed, src)%maxShared, 10)}
}

func (l *limiter) of(src origin, now time.Time) *bucket {
	if b := l.buckets[src]; b != nil {
		return b
	}
	if len(l.buckets) >= maxSources {
		l.sweep(now)
	}
	if len(l.buckets) >= maxSources {
		src = l.shared(src)
		if b := l.buckets[src]; b != nil {
			return b
		}
	}
	b := &bucket{last: now}
	l.buckets[src] = b
	return b
}

// sweep drops sources without failures. It visits all of them, so it does not run for
// every attempt of an attack.
func (l *limiter) sweep(now time.Time) {
	if since := now.Sub(l.swept); since >= 0 && since < refill {
		return
	}
	l.swept = now
	for src, b := range l.buckets {
		if b.settle(now); b.used == 0 {
			delete(l.buckets, src)
		}
	}
}

// origin is the unit for which failures are counted: the place that a token came from
// and the kind of the token.
type origin struct {
	at   string
	kind kind
}

// kind is the form of a token, which determines its possible sources. A token of one
// form is not a guess at a token of another.
type kind uint8

const (
	kindChosen  kind = iota // any form: DOORWARD_TOKEN or --token-file
	kindMade                // doorward token new
	kindAccess              // an issuer
	kindSession             // a session of instructions, or a started agent
)

// sessionToken is the prefix of session tokens (session.Prefix).
const sessionToken = "dws1."

func kindOf(token string) kind {
	switch {
	case strings.HasPrefix(token, madeToken):
		return kindMade
	case strings.HasPrefix(token, sessionToken), strings.HasPrefix(token, SpawnToken):
		return kindSession
	case looksLikeJWT(token):
		return kindAccess
	}
	return kindChosen
}

// sourceOf returns the source of a failing caller: for a client of a trusted proxy, the
// address that the proxy names; for any other remote caller, its own address (an IPv6
// network of 64 bits is one source); for a local caller, the listener and the owner of
// the socket if it is known. A client of a proxy is never local.
func sourceOf(c *Caller, client netip.Addr, k kind) origin {
	if client.IsValid() {
		return origin{c.Listener + " client " + network(client), k}
	}
	if c.Remote.IsValid() && !c.Remote.Unmap().IsLoopback() {
		return origin{network(c.Remote), k}
	}
	if c.OwnerKnown {
		return origin{c.Listener + " uid " + number(factUID, c.OwnerUID, 0).Value, k}
	}
	return origin{"listener " + c.Listener, k}
}

// network returns the part of an address that one host has to itself.
func network(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		p, _ := a.Prefix(64)
		return p.String()
	}
	return a.String()
}
