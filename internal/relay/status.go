package relay

import (
	"fmt"
	"time"

	"github.com/doorward/doorward/internal/downstream/front"
)

// Status is what `doorward status` shows of one server.
type Status struct {
	Name, Kind, State, Era, Reason string
	Instances                      int
}

// Status lists the configured servers.
func (r *Relay) Status() []Status {
	var out []Status
	for _, b := range r.table.Load().sorted {
		s := Status{Name: b.Name, Kind: b.Kind, Era: b.era(), Instances: b.instances()}
		s.State, s.Reason = b.state(s.Instances)
		out = append(out, s)
	}
	return out
}

// state returns the state of a server and its reason. A state that keeps calls
// from the server takes precedence.
func (b *backend) state(instances int) (state, reason string) {
	if b.Refused != "" {
		return "refused", b.Refused
	}
	if b.SignIn != nil {
		switch what, trouble := b.SignIn.Needs(); {
		case what != "":
			return "sign-in needed", what
		case trouble != nil:
			return "sign-in failed", trouble.Error()
		}
	}
	if b.Builtin != nil {
		return "connected", ""
	}
	if open, wait := b.Upstream.Circuit(); open {
		return "unreachable", fmt.Sprintf("calls are refused, next attempt in %s", wait.Round(100*time.Millisecond))
	}
	if instances > 0 {
		return "connected", ""
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
