package client

import (
	"time"

	"github.com/doorward/doorward/internal/trust/wire"
)

// enter notes a request in flight; over removes it. A second request with the same id is
// not noted: the daemon refuses it.
func (l *legacySession) enter(id wire.ID) (over func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		l.calls = make(map[string]chan struct{})
	}
	key := string(id)
	if l.calls[key] != nil {
		return func() {}
	}
	done := make(chan struct{})
	l.calls[key] = done
	return func() {
		l.mu.Lock()
		delete(l.calls, key)
		l.mu.Unlock()
		close(done)
	}
}

// cancelAgain are the pauses after which a cancellation is repeated.
var cancelAgain = [...]time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second, 3 * time.Second}

// insist repeats a cancellation while its request is still in flight. The two are sent
// on different HTTP connections, so the first cancellation may have arrived before its
// request, without an effect.
func (l *legacySession) insist(s *shim, id, line []byte) {
	l.mu.Lock()
	done := l.calls[string(id)]
	l.mu.Unlock()
	if done == nil {
		return
	}
	line = append([]byte(nil), line...)
	s.busy.Go(func() {
		for _, pause := range cancelAgain {
			select {
			case <-done:
				return
			case <-s.ctx.Done():
				return
			case <-time.After(pause):
			}
			l.post(s, line) // an error means that the request is lost as well
		}
	})
}
