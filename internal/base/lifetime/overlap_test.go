package lifetime_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/doorward/doorward/internal/base/lifetime"
)

// A derived context that has ended and is still referenced keeps none of those that were
// derived later, however they overlap.
func TestAnEndedContextKeepsNoOthers(t *testing.T) {
	const n = 20000
	ctx, end := lifetime.New(context.Background())
	defer end()
	kept, endKept := context.WithCancel(ctx)
	last := endKept
	before := heap()
	for range n {
		_, cancel := context.WithCancel(ctx)
		last() // the one before ends while this one runs
		last = cancel
	}
	last()
	after := heap()
	runtime.KeepAlive(kept)
	if grown := int64(after) - int64(before); grown > n*8 {
		t.Errorf("%d contexts keep %d bytes", n, grown)
	}
}
