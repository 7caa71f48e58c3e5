package relay

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// tried keeps what became of an attempt to connect. One that was not made, for want of
// room or time, or because the last one failed a moment ago, says nothing of the server.
func (b *backend) tried(ctx context.Context, err error) {
	switch {
	case err == nil:
		b.trouble.Store(nil)
		return
	case b.Upstream == nil, ctx.Err() != nil && !errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, failure.ErrInstances), errors.Is(err, failure.ErrGone), errors.Is(err, failure.ErrRefusedServer), errors.Is(err, pin.ErrWithheld),
		errors.Is(err, upstream.ErrBusy), errors.Is(err, upstream.ErrOpen), errors.Is(err, upstream.ErrStreams), errors.Is(err, upstream.ErrSignIn):
		return
	}
	next := &trouble{count: 1, last: time.Now(), why: b.whyNot(err)}
	if before := b.trouble.Load(); before != nil {
		next.count += before.count
	}
	b.trouble.Store(next)
}

// whyNot is why a server did not start, in a few words.
func (b *backend) whyNot(err error) string {
	text := strings.TrimPrefix(err.Error(), "connecting to server "+b.Name+": ")
	end, lines := b.Upstream.LastWords()
	if end == "" || !errors.Is(err, upstream.ErrLost) && !errors.Is(err, upstream.ErrNotSent) {
		return text
	}
	if len(lines) > 0 {
		end += ": " + lines[0]
	}
	return "did not start: " + end
}
