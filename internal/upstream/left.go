package upstream

import "context"

type leftKey struct{}

// WithLeft has a call know whether the connection of its client is gone. A call
// of a session goes on then, since a disconnect cancels nothing, and its answer
// may reach nobody.
func WithLeft(ctx context.Context, left func() bool) context.Context {
	return context.WithValue(ctx, leftKey{}, left)
}

// Left reports that the answer to a call may reach nobody.
func Left(ctx context.Context) bool {
	left, ok := ctx.Value(leftKey{}).(func() bool)
	return ok && left()
}
