package agent

import (
	"context"
	"testing"
	"time"
)

// A look at the held messages that failed is repeated, although nothing changes.
func TestALookAtHeldMessagesThatFailedIsRepeated(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	h.s.minGap = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	looks := 0
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.s.Operator().OnHeld(ctx, func() bool {
			looks++
			if looks == 3 {
				cancel()
			}
			return false
		})
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("it looks no more")
	}
}
