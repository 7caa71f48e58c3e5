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
	// waitLeast is the shortest pause after an answer that it is too early, and
	// the one after a 429 that does not say how long; waitMost is the longest,
	// whatever the remote wants.
	waitLeast = time.Second
	waitMost  = 10 * time.Second
	// waitAll is how long a refresh may take where the remote makes it wait. The
	// first attempt, for which somebody may be waiting, has firstTime.
	waitAll = 2 * time.Minute
)

// busyAnswer: somebody answered that it is too early.
type busyAnswer struct {
	status int
	wait   time.Duration // 0: he does not say for how long, and nobody tries again soon
}

func (e *busyAnswer) Error() string { return fmt.Sprintf("it answers with HTTP %d", e.status) }

// busy is what an answer with 429 or 503 means.
func busy(resp *http.Response, now time.Time) *busyAnswer {
	wait, ok := retryAfter(resp.Header.Get("Retry-After"), now)
	if !ok && resp.StatusCode == http.StatusTooManyRequests {
		wait = waitLeast
	}
	return &busyAnswer{resp.StatusCode, wait}
}

// retryAfter reads seconds or a date, within bounds; false: it is neither.
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

// patience is what one refresh has of it: its requests wait together, so that a
// remote which has had enough is not asked by the others meanwhile.
type patience struct {
	end time.Time

	mu   sync.Mutex
	from time.Time // nobody asks before
}

// with makes a request, and makes it again while the answer is that it is too
// early and there is time left.
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

// later puts off what is asked by some time, and a part of it more, so that
// several mirrors do not come back at once; false: there is no time for that.
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
