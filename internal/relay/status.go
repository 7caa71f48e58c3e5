package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// Status is what `doorward status` shows of one server.
type Status struct {
	Name, Kind, State, Era, Reason string
	Instances                      int
	// Stderr holds the last lines that a failing program wrote to standard error, or one that
	// ended while it was used.
	Stderr []string
	Ended  bool // a program ended while it was used, and Reason says how
}

// Failing is the state of a server that calls do not reach.
const Failing = "failing"

// state returns the state of a server and its reason. A state that keeps calls
// from the server takes precedence.
func (b *backend) state(instances int) (state, reason string) {
	if b.Refused != "" {
		return "refused", b.Refused
	}
	if b.SignIn != nil {
		switch what, trouble := b.SignIn.Needs(); {
		case what != "":
			return Failing, "sign-in needed: " + what
		case trouble != nil:
			return Failing, "sign-in failed: " + trouble.Error()
		}
	}
	if b.Builtin != nil {
		return "connected", ""
	}
	if err := b.startable(); err != nil {
		return "withheld", err.Error() + "; see doorward trust " + b.Name
	}
	if open, wait := b.Upstream.Circuit(); open {
		reason = fmt.Sprintf("calls are refused, next attempt in %s", wait.Round(100*time.Millisecond))
		if t := b.trouble.Load(); t != nil {
			reason += "; " + t.String()
		}
		return Failing, reason
	}
	switch {
	case instances > 0:
		return "connected", ""
	case b.starting():
		return "starting", b.strayed()
	}
	if t := b.trouble.Load(); t != nil {
		return Failing, t.String()
	}
	return "idle", ""
}

// fallOf says how the last process ended that ended while it was used; empty: none since a later
// one has answered a call. lines are its last words.
func fallOf(b *backend) (reason string, lines []string) {
	if b.Upstream == nil {
		return "", nil
	}
	f := upstream.Fallen(b.Upstream)
	if f == nil {
		return "", nil
	}
	reason = "ended: " + f.Reason
	if f.Calls {
		reason = "ended during a call: " + f.Reason
	}
	if lines = f.Lines(); len(lines) > 0 {
		reason += ": " + lines[0]
	}
	return (&trouble{count: f.Count, last: f.Last, why: reason}).String(), lines
}

// era names the eras that the server has spoken.
func (b *backend) era() string {
	if b.Builtin != nil {
		return "both"
	}
	switch spoken := b.spoken.Load(); spoken {
	case eraBit(front.Legacy):
		return "legacy"
	case eraBit(front.Modern):
		return "modern"
	case eraBit(front.Legacy) | eraBit(front.Modern):
		return "both"
	}
	return "unknown"
}

// tried keeps the outcome of an attempt to connect. An attempt that was not made says nothing
// about the server and is ignored: there was no room or time for it, or the last one had just
// failed.
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

// whyNot says in a few words why a server did not start.
func (b *backend) whyNot(err error) string {
	text := strings.TrimPrefix(err.Error(), "connecting to server "+b.Name+": ")
	end, lines := b.Upstream.LastWords()
	said := b.strayed()
	if end == "" || !errors.Is(err, upstream.ErrLost) && !errors.Is(err, upstream.ErrNotSent) {
		if said != "" && errors.Is(err, upstream.ErrTimeout) {
			text += "; " + said
		}
		return text
	}
	switch {
	case len(lines) > 0:
		end += ": " + lines[0]
	case said != "":
		end += "; " + said
	}
	return "did not start: " + end
}

// strayed says what a server printed on standard output that is no message, "" for nothing.
func (b *backend) strayed() string {
	n, last := b.Upstream.Stray()
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("standard output: %d lines that are not messages, the last: %s", n, last)
}
