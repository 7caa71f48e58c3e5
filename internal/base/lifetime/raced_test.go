package lifetime_test

import (
	"context"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/base/lifetime"
)

// TestDerivedWhileTheParentEnds: a context that is derived at the moment at which its parent ends
// ends too.
func TestDerivedWhileTheParentEnds(t *testing.T) {
	t.Parallel()
	for range 20_000 {
		above, endAbove := lifetime.New(context.Background())
		var wg sync.WaitGroup
		wg.Go(endAbove)
		below, end := lifetime.New(above)
		wg.Wait()
		if below.Err() == nil {
			t.Fatal("the context outlives its parent")
		}
		end()
	}
}

// TestStopAfterTheEnd: a function of a context that has ended is called, so it cannot be stopped.
func TestStopAfterTheEnd(t *testing.T) {
	t.Parallel()
	ctx, end := lifetime.New(context.Background())
	end()
	called := make(chan struct{})
	after := ctx.(interface {
		AfterFunc(f func()) (stop func() bool)
	})
	stop := after.AfterFunc(func() { close(called) })
	if stop() {
		t.Error("a function that is called counts as stopped")
	}
	<-called
}
