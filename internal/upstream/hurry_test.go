package upstream

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// A child that has closed its standard input is over soon, although calls come all the time.
func TestCallsDoNotKeepAChildThatDoesNotReadInUse(t *testing.T) {
	t.Parallel()
	c := dialLegacy(t, fake(t, "plain"), nil)
	mustCall(t, c, tool("close-stdin"), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var calls sync.WaitGroup
	defer calls.Wait()
	often := time.NewTicker(lastWords / 8)
	defer often.Stop()
	for {
		select {
		case <-often.C:
			calls.Go(func() {
				if _, err := c.Call(ctx, tool("echo"), nil); !errors.Is(err, ErrNotSent) && ctx.Err() == nil {
					t.Errorf("a call: %v", err)
				}
			})
		case <-c.Done():
			return
		case <-ctx.Done():
			t.Fatal("the connection is not over")
		}
	}
}
