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
type largeBodies struct {
	mu     sync.Mutex
	places map[string]*places // by the name of a principal that has a place or waits for one
}

type places struct {
	taken chan struct{}
	users int // bodies that are read or wait; guarded by largeBodies.mu
}

const (
	largeAtOnce = 32
	goneEvery   = time.Second // time between two checks whether a caller that waits has hung up
)

var (
	errTooMany = errors.New("too many large bodies at once")
	errGone    = errors.New("the client hung up")
)

// enter waits for a place of who, at most for limit, and not for a client that is gone. leave has to
// be called when the body was read.
func (l *largeBodies) enter(who *principal.Principal, limit time.Duration, gone func() bool) (leave func(), err error) {
	p := l.join(who.Name())
	if err := p.take(limit, gone); err != nil {
		l.part(who.Name(), p)
		return nil, err
	}
	return func() { <-p.taken; l.part(who.Name(), p) }, nil
}

func (l *largeBodies) join(name string) *places {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.places == nil {
		l.places = make(map[string]*places)
	}
	if l.places[name] == nil {
		l.places[name] = &places{taken: make(chan struct{}, largeAtOnce)}
	}
	l.places[name].users++
	return l.places[name]
}

func (l *largeBodies) part(name string, p *places) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(l.places, name)
	}
}

func (p *places) take(limit time.Duration, gone func() bool) error {
	end, check := time.After(limit), time.NewTicker(goneEvery)
	defer check.Stop()
	for {
		select {
		case p.taken <- struct{}{}:
			return nil
		case <-end:
			return errTooMany
		case <-check.C:
			if gone != nil && gone() {
				return errGone
			}
		}
	}
}
