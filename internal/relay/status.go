package relay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/downstream/front"
)

// Status is what `doorward status` shows of one server.
type Status struct {
	Name, Kind, State, Era, Reason string
	Instances                      int
	// Stderr are the last lines that a failing program wrote to standard error.
	Stderr []string
}

// Status lists the configured servers.
func (r *Relay) Status() []Status {
	var out []Status
	for _, b := range r.table.Load().sorted {
		s := Status{Name: b.Name, Kind: b.Kind, Era: b.era(), Instances: b.instances()}
		s.State, s.Reason = b.state(s.Instances)
		s.Reason = strings.Join(slices.DeleteFunc([]string{s.Reason, b.owed.Text()}, func(s string) bool { return s == "" }), "; ")
		if s.State == Failing && b.Upstream != nil {
			_, s.Stderr = b.Upstream.LastWords()
		}
		out = append(out, s)
	}
	return out
}

// Failing is the state of a server that calls do not get through to.
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
		return "starting", ""
	}
	if t := b.trouble.Load(); t != nil {
		return Failing, t.String()
	}
	return "idle", ""
}

// era is what has been learnt of the server's protocol.
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
