package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// reasoned adds the reason of a failure for the owner of the daemon. Everybody else gets
// the constant text, which tells nothing of the machine.
func (r *Relay) reasoned(e *wire.Error, who *principal.Principal, reason string) *wire.Error {
	if reason == "" || !r.owns(who) {
		return e
	}
	e.Data = rawjson.Set(e.Data, rawjson.Edit{Key: "reason", Value: rawjson.AppendQuote(nil, reason)})
	return e
}

// owns reports the daemon's own user on the Unix socket.
func (r *Relay) owns(who *principal.Principal) bool {
	return r.owner != "" && who.Valid() && who.Name() == r.owner
}

// whyDenied is the rule of a denial and where it stands.
func (r *Relay) whyDenied(rule string) string {
	if r.place == nil {
		return rule
	}
	if at := r.place(rule); at != "" {
		return rule + " (" + at + ")"
	}
	return rule
}

// whyFailed is why a server did not answer: what went wrong, and of a program how its
// last process ended and what it wrote last to standard error.
func (r *Relay) whyFailed(server string, err error) string {
	b := r.table.Load().byName[server]
	switch {
	case r.closing.Err() != nil:
		return "Doorward is stopping"
	case b != nil && b.Refused != "":
		return "refused: " + b.Refused
	}
	why := []string{err.Error()}
	if err == context.DeadlineExceeded {
		why = []string{"no answer in time"}
	}
	if late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, upstream.ErrTimeout); late && b != nil && b.Timeout > 0 {
		why = append(why, failure.CapOf(server, "timeout")+" is "+b.Timeout.String())
	}
	if b != nil && b.Upstream != nil {
		end, lines := b.Upstream.LastWords()
		if end != "" {
			why = append(why, "last process: "+end)
		}
		if len(lines) > 0 {
			why = append(why, "standard error: "+strings.Join(lines, " | "))
		}
		if n, last := b.Upstream.Stray(); n > 0 {
			why = append(why, fmt.Sprintf("standard output: %d lines that are no messages, the last: %s", n, last))
		}
	}
	return strings.Join(why, "; ")
}
