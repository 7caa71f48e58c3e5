package client

import (
	"context"
	"time"

	"github.com/doorward/doorward/internal/trust/wire"
)

// enter notes a request in flight; over removes it. A second request with the same id is
// not noted: the daemon refuses it.
func (l *legacySession) enter(ctx context.Context, id wire.ID) (f *flight, over func()) {
	f = &flight{done: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancel(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		l.calls = make(map[string]*flight)
	}
	key := string(id)
	if l.calls[key] != nil {
		return f, f.cancel
	}
	l.calls[key] = f
	return f, func() {
		l.mu.Lock()
		delete(l.calls, key)
		l.mu.Unlock()
		close(f.done)
		f.cancel()
	}
}

// cancelAgain are the pauses after which a cancellation is repeated.
var cancelAgain = [...]time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second, 3 * time.Second}

// insist repeats a cancellation while its request is still in flight. The two are sent
// on different HTTP connections, so the first cancellation may have arrived before its
// request, without an effect.
func (l *legacySession) insist(s *shim, f *flight, line []byte) {
	line = append([]byte(nil), line...)
	s.busy.Go(func() {
		for _, pause := range cancelAgain {
			select {
			case <-f.done:
				return
			case <-s.ctx.Done():
				return
			case <-time.After(pause):
			}
			l.post(s, line) // an error means that the request is lost as well
		}
	})
}

// cancelled carries a cancellation. Its request gets no answer from then on.
func (l *legacySession) cancelled(s *shim, id []byte, m *wire.Message, line []byte) {
	l.mu.Lock()
	f := l.calls[string(id)]
	l.mu.Unlock()
	if f != nil {
		f.cancel()
	}
	l.oneWay(s, m, line)
	if f != nil {
		l.insist(s, f, line)
	}
}
