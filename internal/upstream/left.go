package upstream

import "context"

type leftKey struct{}

// WithLeft lets a call find out whether the connection of its client is gone. A call of a
// session continues then, because a disconnect cancels nothing, and its answer may be lost.
func WithLeft(ctx context.Context, left func() bool) context.Context {
	return context.WithValue(ctx, leftKey{}, left)
}

// Left reports whether the answer to a call may be lost, because its client is gone.
func Left(ctx context.Context) bool {
	left, ok := ctx.Value(leftKey{}).(func() bool)
	return ok && left()
}
