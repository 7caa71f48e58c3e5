package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// failures are what callers are told of acts that failed or were refused. The owner of
// the daemon is told the reason.
type failures struct {
	log     *slog.Logger
	dev     bool
	owner   string
	place   func(rule string) string
	stepUp  func(policy.Request) string
	table   *atomic.Pointer[table]
	closing context.Context
}

// reasoned adds the reason of a failure for the owner of the daemon. Everybody else gets
// the constant text, which tells nothing of the machine.
func (a *failures) reasoned(e *wire.Error, who *principal.Principal, reason string) *wire.Error {
	if reason == "" || !a.owns(who) {
		return e
	}
	e.Data = rawjson.Set(e.Data, rawjson.Edit{Key: "reason", Value: rawjson.AppendQuote(nil, reason)})
	return e
}

// owns reports the daemon's own user on the Unix socket.
func (a *failures) owns(who *principal.Principal) bool {
	return a.owner != "" && who.Valid() && who.Name() == a.owner
}

// whyDenied is the rule of a denial and where it stands.
func (a *failures) whyDenied(rule string) string {
	if a.place == nil {
		return rule
	}
	if at := a.place(rule); at != "" {
		return rule + " (" + at + ")"
	}
	return rule
}

// whyFailed is why a server did not answer: what went wrong, and of a program how its
// last process ended and what it wrote last to standard error.
func (a *failures) whyFailed(server string, err error) string {
	b := a.table.Load().byName[server]
	switch {
	case a.closing.Err() != nil:
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
