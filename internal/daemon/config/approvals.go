package config

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Approvals is how calls are held for the operator.
type Approvals struct {
	Wait     string          `yaml:"wait" default:"auto" doc:"How long a held call waits for its answer before the client is told that it is pending, such as 50s, at most 1h. auto is what the client is known to bear."`
	Expire   time.Duration   `yaml:"expire" default:"1h" min:"1s" max:"24h" doc:"How long a call can be approved. One that is not is denied."`
	Presence string          `yaml:"presence" default:"terminal" enum:"terminal|passkey" doc:"What shows that a person approves: terminal is a controlling terminal that is not an agent's, or the console; passkey is a passkey, in the console alone, which needs a loopback listener."`
	Notify   ApprovalsNotify `yaml:"notify" doc:"How the operator hears of a held call."`
}

// ApprovalsNotify is how the operator hears of a held call.
type ApprovalsNotify struct {
	Command []string `yaml:"command" refs:"env" doc:"A program and its arguments, started for each held call with DOORWARD_PENDING, DOORWARD_CLIENT, DOORWARD_SERVER and DOORWARD_TOOL in its environment, and never the call's arguments."`
}

// PresencePasskey is the presence that takes a passkey.
const PresencePasskey = "passkey"

// maxWait bounds approvals.wait.
const maxWait = time.Hour

// WaitTime is approvals.wait; false where it is auto.
func (a Approvals) WaitTime() (time.Duration, bool) {
	d, err := time.ParseDuration(a.Wait)
	return d, err == nil
}

// approvals checks what the types do not.
func (k checker) approvals(a Approvals, listeners []Listener) {
	if a.Presence == PresencePasskey && !slices.ContainsFunc(listeners, servesConsole) {
		k.report.also("approvals.presence", "passkey needs the console, which is served on loopback alone: add 127.0.0.1:7866 to listen.http")
	}
	if t, given := a.WaitTime(); a.Wait != "auto" && (!given || t < 0 || t > maxWait) {
		k.report.also("approvals.wait", "write auto, or a duration of at most 1h such as 50s")
	}
}

// servesConsole reports whether a listener is reached under the name localhost.
func servesConsole(l Listener) bool {
	host, _, err := net.SplitHostPort(l.Addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && (ip == netip.IPv6Loopback() || ip == netip.AddrFrom4([4]byte{127, 0, 0, 1}))
}
