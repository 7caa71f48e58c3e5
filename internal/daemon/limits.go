package daemon

import (
	"fmt"
	"math"

	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

// isOwn returns a function that recognises the names of the daemon's own user, on the Unix
// socket and on loopback. Agents and servers that the daemon started have names of their own.
func isOwn(uid uint32) func(name string) bool {
	socket, loopback := fmt.Sprintf("uid:%d", uid), fmt.Sprintf("loopback:uid=%d", uid)
	return func(name string) bool { return name == socket || name == loopback }
}

// limitsOf returns the limits of principals. Limits that the configuration does not set do
// not apply to the daemon's own user.
func limitsOf(l config.Limits, uid uint32) gate.Limits {
	all := gate.Limits{CallsPerSecond: l.CallsPerSecond, Calls: l.CallsPerPrincipal, Streams: l.SessionsPerPrincipal}
	own := all
	for key, limit := range map[string]*int{"calls_per_second": &own.CallsPerSecond, "calls_per_principal": &own.Calls, "sessions_per_principal": &own.Streams} {
		if !l.Written[key] {
			*limit = 0
		}
	}
	all.Own, all.IsOwn = &own, isOwn(uid)
	return all
}

// boundsOf returns the limits of a principal's sessions, and of the calls in each.
func boundsOf(l config.Limits, uid uint32) func(*principal.Principal) (sessions, calls int) {
	own := isOwn(uid)
	return func(who *principal.Principal) (sessions, calls int) {
		sessions, calls = l.SessionsPerPrincipal, l.CallsPerPrincipal
		if own(who.Name()) && !l.Written["sessions_per_principal"] {
			sessions = math.MaxInt
		}
		if own(who.Name()) && !l.Written["calls_per_principal"] {
			calls = math.MaxInt
		}
		return sessions, calls
	}
}
