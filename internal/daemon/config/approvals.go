package config

import (
	"encoding/base64"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
)

// Approvals is how calls are held for the operator.
type Approvals struct {
	Wait     string          `yaml:"wait" default:"auto" doc:"How long a held call waits for its answer before the client is told that it is pending, such as 50s, at most 1h. auto is as long as the client is known to wait."`
	Expire   time.Duration   `yaml:"expire" default:"1h" min:"1s" max:"24h" doc:"How long a call can be approved. A call that is not approved by then is denied."`
	Presence string          `yaml:"presence" default:"terminal" enum:"terminal|passkey" doc:"How a person proves to be present when approving: terminal is a controlling terminal that is not an agent's, or the console; passkey is a passkey in the console, which needs a loopback listener."`
	Notify   ApprovalsNotify `yaml:"notify" doc:"How the operator is told of a held call or message."`
}

// ApprovalsNotify is how the operator is told of a held call or message.
type ApprovalsNotify struct {
	Command []string `yaml:"command" refs:"env" doc:"A program and its arguments, started for each held call or message with DOORWARD_PENDING, DOORWARD_CLIENT, DOORWARD_SERVER and DOORWARD_TOOL in its environment. It never gets arguments or texts."`
	// Webhook is a secret: its path often is.
	Webhook   secret.Value `yaml:"webhook" refs:"any" doc:"An address to which each held call or message is posted, signed as in Standard Webhooks; see approvals.md."`
	Secret    secret.Value `yaml:"webhook_secret" refs:"any" doc:"The key that signs the notice: whsec_ and base64, or any text, of 24 bytes at least. Empty is webhook.secret in the state directory, which Doorward makes."`
	Arguments bool         `yaml:"webhook_arguments" default:"false" doc:"Send the arguments of the call too. They leave the machine then."`
	Private   bool         `yaml:"allow_private" default:"false" doc:"Let webhook lead to loopback, private and shared addresses, and allow plain http to them."`
	Desktop   string       `yaml:"desktop" default:"auto" enum:"auto|off" doc:"auto shows a notice on the desktop where the daemon has a session bus (D-Bus)."`
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
	k.webhook(a.Notify)
}

// webhook checks where notices go.
func (k checker) webhook(n ApprovalsNotify) {
	const key = "approvals.notify.webhook"
	raw := n.Webhook.Reveal()
	scheme, _, _ := strings.Cut(strings.ToLower(raw), ":")
	switch {
	case raw == "" || k.report.failed[key]:
	case scheme != "http" && scheme != "https":
		k.report.fail(key, "the address must begin with https:// or http://")
	case k.o.CheckURL != nil:
		if err := k.o.CheckURL(raw, n.Private); err != nil {
			k.report.fail(key, err.Error())
		} else if scheme == "http" && !n.Private {
			k.report.warn(key, "http is not encrypted, and whoever is on the way can read what is sent; write https")
		}
	}
	if s := n.Secret.Reveal(); s != "" && !k.report.failed[key+"_secret"] && !signs(s) {
		k.report.fail(key+"_secret", "this must be whsec_ and base64, or any text, of 24 bytes at least")
	}
}

// signs tells whether a text can be a webhook's secret.
func signs(text string) bool {
	coded, ok := strings.CutPrefix(text, "whsec_")
	if !ok {
		return len(text) >= 24
	}
	b, err := base64.StdEncoding.DecodeString(coded)
	return err == nil && len(b) >= 24
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
