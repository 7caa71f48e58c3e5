package lifetime

import (
	"context"
	"testing"
)

// BenchmarkBelow measures a context that is derived from a life and ended, as for each call of a
// session.
func BenchmarkBelow(b *testing.B) {
	session, end := New(context.Background())
	defer end()
	for name, derive := range map[string]func(context.Context) (context.Context, context.CancelFunc){"context": context.WithCancel, "lifetime": New} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ctx, end := derive(session)
				ctx.Done()
				end()
			}
		})
	}
}
