package front

import (
	"testing"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

// asking is an attachment that asks its session something when it is closed.
type asking struct {
	s      *Session
	closed int
}

func (a *asking) Close() {
	a.s.IdleSince()
	a.closed++
}

// An attachment that is made after the end of its session is closed once, and may use the session
// while it is closed.
func TestAnAttachmentOfAnEndedSessionIsClosed(t *testing.T) {
	t.Parallel()
	s := newSession(newSessionID(), principal.New("token:ann"), "", overStreamable, time.Now())
	s.close()
	a := &asking{s: s}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2 {
			s.Attached(func() Attachment { return a })
		}
		s.close()
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("Close waits for the session")
	}
	if a.closed != 1 {
		t.Errorf("closed %d times", a.closed)
	}
}
