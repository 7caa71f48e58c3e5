package upstream

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of the circuit to a server over the network.
const (
	circuitFailures = 5 // in a row, until it opens
	firstOpen       = 2 * time.Second
	lastOpen        = time.Minute
)

// circuit prevents calls from waiting for a server that cannot be reached. After several
// failures in a row to connect, calls are refused at once for a while, and then one call is
// let through as a probe. Only failures to connect count, because no client can cause them: a
// failure of a call itself affects only that call.
type circuit struct {
	clean  atomic.Bool // no failure since the last success: the usual case needs no lock
	change func(open bool, failures int, wait time.Duration)

	mu       sync.Mutex
	failures int // in a row
	pause    time.Duration
	until    time.Time // open until then; zero: closed
	probing  bool      // a probe is under way
}

// enter lets a request through, or returns how long the circuit stays open. done must get the
// outcome.
func (c *circuit) enter() (probe bool, wait time.Duration) {
	if c.clean.Load() {
		return false, 0
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.until.IsZero():
		return false, 0
	case now.Before(c.until):
		return false, c.until.Sub(now)
	case c.probing:
		return false, time.Second
	}
	c.probing = true
	return true, 0
}

// done takes the outcome of a request that was let through.
func (c *circuit) done(probe bool, ctx context.Context, err error) {
	connecting := err != nil && isConnecting(err)
	switch {
	case err == nil || !connecting && ctx.Err() == nil: // it was connected; later errors do not matter
		if !c.clean.Load() {
			c.closed()
		}
	case errors.Is(ctx.Err(), context.Canceled) || !connecting: // the caller gave up, which shows nothing about the server
		if probe {
			c.mu.Lock()
			c.probing = false
			c.mu.Unlock()
		}
	default:
		c.failed(probe, time.Now())
	}
}

func (c *circuit) closed() {
	c.mu.Lock()
	open := !c.until.IsZero()
	c.failures, c.pause, c.until, c.probing = 0, 0, time.Time{}, false
	c.clean.Store(true)
	c.mu.Unlock()
	if open {
		c.change(false, 0, 0)
	}
}

func (c *circuit) failed(probe bool, now time.Time) {
	c.mu.Lock()
	c.clean.Store(false)
	c.failures++
	if probe {
		c.probing = false
	}
	opens := probe || c.until.IsZero() && c.failures >= circuitFailures
	if opens {
		c.pause = min(max(2*c.pause, firstOpen), lastOpen)
		c.until = now.Add(c.pause)
	}
	failures, wait := c.failures, c.pause
	c.mu.Unlock()
	if opens && !probe {
		c.change(true, failures, wait)
	}
}

// open returns the state of the circuit: the failures in a row, how long it still refuses
// requests, and whether it is open. An open circuit without a wait lets the next request
// through as a probe.
func (c *circuit) open(now time.Time) (failures int, wait time.Duration, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failures, max(0, c.until.Sub(now)), !c.until.IsZero()
}
