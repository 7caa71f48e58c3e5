package front

import (
	"errors"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

// largeBodies limits how many bodies of one principal that exceed a pooled buffer are read at
// once; further ones wait. Such a body takes its memory while it arrives, its client decides how
// long that lasts, and the limits of calls do not count it yet.
type largeBodies struct{ places sync.Map } // the name of a principal -> chan struct{}

const largeAtOnce = 32

var errTooMany = errors.New("too many large bodies at once")

// of returns a function that waits for a place of who, at most for limit. leave has to be called
// when the body was read.
func (l *largeBodies) of(who *principal.Principal) func(limit time.Duration) (leave func(), err error) {
	return func(limit time.Duration) (leave func(), err error) {
		v, ok := l.places.Load(who.Name())
		if !ok {
			v, _ = l.places.LoadOrStore(who.Name(), make(chan struct{}, largeAtOnce))
		}
		places := v.(chan struct{})
		select {
		case places <- struct{}{}:
			return func() { <-places }, nil
		case <-time.After(limit):
			return nil, errTooMany
		}
	}
}
