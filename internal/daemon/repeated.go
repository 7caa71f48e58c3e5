package daemon

import (
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// repeated logs a failure that occurs often for one cause, such as a full disk: the first one
// of a cause at once, and then one every repeatedTime with the number of those between.
type repeated struct {
	mu     sync.Mutex
	causes map[string]*logged
}

// logged is the last log line about one cause.
type logged struct {
	at   time.Time
	left int // failures since then
}

// repeatedTime is the time between two log lines about the same cause.
const repeatedTime = 5 * time.Minute

func (r *repeated) warn(log *slog.Logger, text string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, cause := time.Now(), causeOf(err)
	before := r.causes[cause]
	switch {
	case before == nil:
		maps.DeleteFunc(r.causes, func(_ string, s *logged) bool { return now.Sub(s.at) >= 2*repeatedTime })
		before = &logged{}
		if r.causes == nil {
			r.causes = map[string]*logged{}
		}
		r.causes[cause] = before
	case now.Sub(before.at) < repeatedTime:
		before.left++
		return
	}
	log.Warn(text, "since_then", before.left, "err", err)
	*before = logged{at: now}
}

// causeOf returns a text that failures of one cause share: that of the innermost error, because
// the text of a file's error contains the random name of a draft. Of joined errors it is the first.
func causeOf(err error) string {
	for inner := err; inner != nil; {
		err = inner
		if joined, ok := err.(interface{ Unwrap() []error }); ok && len(joined.Unwrap()) > 0 {
			inner = joined.Unwrap()[0]
		} else {
			inner = errors.Unwrap(err)
		}
	}
	return err.Error()
}
