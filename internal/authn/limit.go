package authn

import (
	"errors"
	"hash/maphash"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A source may fail burst times at once, and then once every refill. Beyond
// that a token that somebody chose is not compared at all, so that guessing
// has a rate. One that Doorward made still is: nobody guesses 256 random bits,
// and its holder must not pay for who shares the source.
const (
	burst      = 20
	refill     = time.Second
	maxSources = 4096
	maxShared  = 1024
)

// ErrTooMany: this source failed too often: 429. The error says when to ask
// again, see TooManyError.
var ErrTooMany = errors.New("too many failed authentications")

// TooManyError is an ErrTooMany.
type TooManyError struct {
	Wait time.Duration // until the next token of this source is looked at
}

func (e *TooManyError) Error() string { return ErrTooMany.Error() }

// RetryAfter is Wait in whole seconds, rounded up.
func (e *TooManyError) RetryAfter() int { return int((e.Wait + time.Second - 1) / time.Second) }

// Is makes it an ErrTooMany.
func (e *TooManyError) Is(target error) bool { return target == ErrTooMany }

// limiter is a token bucket for each source. A source without failures has no
// bucket. Sources beyond maxSources share a fixed number of buckets, so that
// under an attack from many addresses the memory stays bounded; which one is
// secret, so that nobody can aim at another's.
//
// Admitted limit: callers that share a source (one address, one loopback
// listener and user) share its failures. A connection that has authenticated
// before goes on regardless.
type limiter struct {
	mu      sync.Mutex
	buckets map[string]*bucket
	seed    maphash.Seed
	swept   time.Time

	missing, invalid, limited atomic.Uint64
}

func newLimiter() *limiter {
	return &limiter{buckets: map[string]*bucket{}, seed: maphash.MakeSeed()}
}

type bucket struct {
	used float64 // failures not yet forgiven
	last time.Time
}

// settle forgives what time has forgiven.
func (b *bucket) settle(now time.Time) {
	if passed := now.Sub(b.last); passed > 0 {
		b.used = max(0, b.used-float64(passed)/float64(refill))
	}
	b.last = now
}

// take charges a source for one attempt beforehand, so that many attempts at
// once cannot get past the limit; refund gives it back for a good one. Nothing
// is charged when there is a time to wait.
func (l *limiter) take(src string, now time.Time) (wait time.Duration) {
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

func (l *limiter) refund(src string, now time.Time) {
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

// shared is the bucket of a source that found no room of its own.
func (l *limiter) shared(src string) string {
	return "shared " + strconv.FormatUint(maphash.String(l.seed, src)%maxShared, 10)
}

func (l *limiter) of(src string, now time.Time) *bucket {
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

// sweep drops the sources whose failures are all forgiven. It looks at all of
// them, so it is not done for every attempt of an attack.
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

// sourceOf tells failing callers apart: by address off the host (an IPv6
// network of 64 bits is one), by listener on it, and there by the owner of the
// socket where that is known.
func sourceOf(c *Caller) string {
	remote := c.Remote.Unmap().WithZone("")
	switch {
	case !remote.IsValid() || remote.IsLoopback():
		if c.OwnerKnown {
			return c.Listener + " uid " + number(factUID, c.OwnerUID, 0).Value
		}
		return "listener " + c.Listener
	case remote.Is6():
		network, _ := remote.Prefix(64)
		return network.String()
	}
	return remote.String()
}
