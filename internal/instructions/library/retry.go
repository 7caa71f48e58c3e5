package library

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// waitLeast is the shortest pause after an answer that asks for one, and the pause
	// after a 429 without Retry-After; waitMost is the longest, whatever the remote asks
	// for.
	waitLeast = time.Second
	waitMost  = 10 * time.Second
	// waitAll bounds a refresh during which the remote asks for pauses. The first
	// attempt, which callers may be waiting for, has firstTime.
	waitAll = 2 * time.Minute
)

// busyAnswer is an answer with 429 or 503.
type busyAnswer struct {
	status int
	wait   time.Duration // 0: no pause was given, and the request is not repeated in this refresh
}

func (e *busyAnswer) Error() string { return fmt.Sprintf("it answers with HTTP %d", e.status) }

// busy returns the error for an answer with 429 or 503.
func busy(resp *http.Response, now time.Time) *busyAnswer {
	wait, ok := retryAfter(resp.Header.Get("Retry-After"), now)
	if !ok && resp.StatusCode == http.StatusTooManyRequests {
		wait = waitLeast
	}
	return &busyAnswer{resp.StatusCode, wait}
}

// retryAfter parses seconds or a date, within the bounds; false: it is neither.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0, false
	}
	if strings.Trim(value, "0123456789") == "" {
		value = strings.TrimLeft(value, "0")
		if len(value) > 4 {
			return waitMost, true
		}
		seconds := time.Duration(0)
		for _, digit := range value {
			seconds = 10*seconds + time.Duration(digit-'0')
		}
		return min(max(seconds*time.Second, waitLeast), waitMost), true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), waitLeast), waitMost), true
}

// patience is the retry state of one refresh. Its requests wait together, so that a busy
// remote gets no request from the others meanwhile.
type patience struct {
	end time.Time

	mu   sync.Mutex
	from time.Time // no request is made before
}

// with makes a request, and repeats it while the remote is busy and there is time left.
func (p *patience) with(ctx context.Context, ask func() error) error {
	for {
		p.mu.Lock()
		wait := time.Until(p.from)
		p.mu.Unlock()
		if wait > 0 {
			pause(ctx, wait)
		}
		err := ask()
		var early *busyAnswer
		if !errors.As(err, &early) || early.wait == 0 || ctx.Err() != nil || !p.later(early.wait) {
			return err
		}
	}
}

// later postpones all requests by a pause and a random part of it, so that several
// mirrors do not return at the same time; false: there is no time for that.
func (p *patience) later(wait time.Duration) bool {
	from := time.Now().Add(wait + rand.N(wait/4))
	if from.After(p.end) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if from.After(p.from) {
		p.from = from
	}
	return true
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
