package authn

import (
	"sync"
	"sync/atomic"
	"time"
)

// RetryAfter is what a caller is told to wait after ErrTooMany.
const RetryAfter = 5 * time.Second

// A source may fail burst times at once, and then once every refill. Beyond
// that its tokens are not compared at all, so that guessing has a rate.
const (
	burst      = 20
	refill     = time.Second
	maxSources = 4096
)

// limiter is a token bucket for each source. A source without failures has no
// bucket. Sources beyond maxSources share one: under an attack from many
// addresses the memory stays bounded, and it is the attackers who wait.
//
// Admitted limit: callers that share a source (one address, one loopback
// listener) share its failures. A connection that has authenticated before
// goes on regardless.
type limiter struct {
	mu      sync.Mutex
	buckets map[string]*bucket

	missing, invalid, limited atomic.Uint64
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
// once cannot get past the limit; refund gives it back for a good one.
func (l *limiter) take(src string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.of(src, now)
	b.settle(now)
	if b.used > burst-1 {
		return false
	}
	b.used++
	return true
}

func (l *limiter) refund(src string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[src]
	if b == nil {
		src = overflow
		if b = l.buckets[src]; b == nil {
			return
		}
	}
	b.settle(now)
	if b.used = max(0, b.used-1); b.used == 0 {
		delete(l.buckets, src)
	}
}

// overflow is the source that those share that found no room.
const overflow = ""

func (l *limiter) of(src string, now time.Time) *bucket {
	if b := l.buckets[src]; b != nil {
		return b
	}
	if len(l.buckets) >= maxSources {
		l.sweep(now)
	}
	if len(l.buckets) >= maxSources {
		src = overflow
		if b := l.buckets[src]; b != nil {
			return b
		}
	}
	b := &bucket{last: now}
	l.buckets[src] = b
	return b
}

// sweep drops the sources whose failures are all forgiven.
func (l *limiter) sweep(now time.Time) {
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
