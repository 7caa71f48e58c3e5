package process

import (
	"math/rand/v2"
	"time"
)

// Bounds of [Backoff].
const (
	BackoffFirst = 250 * time.Millisecond
	BackoffMax   = 30 * time.Second
	BackoffReset = time.Minute
)

// Backoff spaces the restarts of a server that keeps ending: 0.25 s, doubling to 30 s, each cut by up to a quarter at
// random, so that servers that ended together do not restart together. A life of 60 s or more starts over. The zero
// value is ready. It holds no lock and no clock: its owner serialises the calls and passes the time.
type Backoff struct {
	Rand func() float64 // in [0, 1); nil: math/rand/v2

	next  time.Duration
	until time.Time
}

// Ended notes that a child that was started at started has ended at now, and returns the pause before the next start.
func (b *Backoff) Ended(started, now time.Time) time.Duration {
	if now.Sub(started) >= BackoffReset || b.next == 0 {
		b.next = BackoffFirst
	}
	wait := b.jitter(b.next)
	b.next = min(2*b.next, BackoffMax)
	b.until = now.Add(wait)
	return wait
}

// Wait returns how long the next start must still wait at now; zero: it may start.
func (b *Backoff) Wait(now time.Time) time.Duration {
	return max(0, b.until.Sub(now))
}

func (b *Backoff) jitter(d time.Duration) time.Duration {
	random := b.Rand
	if random == nil {
		random = rand.Float64
	}
	return d - time.Duration(random()*float64(d)/4)
}
