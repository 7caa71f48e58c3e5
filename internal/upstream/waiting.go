package upstream

import (
	"context"
	"errors"
)

// Waiting is the error of a call whose built-in server waits for an event: the call has
// neither failed nor ended. The functions that passed it on have returned, so that a wait
// needs no stack. The one that keeps it calls Await and then Go, until the error of Go is
// no Waiting.
type Waiting struct {
	Await func(ctx context.Context)                // returns when Go has something to do, or ctx has ended
	Go    func(ctx context.Context) (Reply, error) // continues the call
}

func (*Waiting) Error() string { return "the call waits for an event" }

// Waits returns the Waiting in the error of a call; nil: the call has ended.
func Waits(err error) (w *Waiting) {
	if err != nil {
		errors.As(err, &w)
	}
	return w
}

// Then returns the call w with f applied to its outcome.
func (w *Waiting) Then(f func(context.Context, Reply, error) (Reply, error)) *Waiting {
	return &Waiting{Await: w.Await, Go: func(ctx context.Context) (Reply, error) {
		reply, err := w.Go(ctx)
		if again := Waits(err); again != nil {
			return reply, again.Then(f)
		}
		return f(ctx, reply, err)
	}}
}
