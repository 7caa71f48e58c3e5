package config

import (
	"encoding/base64"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// PresencePasskey is the value of approvals.presence that requires a passkey.
const PresencePasskey = "passkey"

// maxWait bounds approvals.wait.
const maxWait = time.Hour

// WaitTime returns approvals.wait; false if it is auto.
func (a Approvals) WaitTime() (time.Duration, bool) {
	d, err := time.ParseDuration(a.Wait)
	return d, err == nil
}

// approvals checks what the types of the fields do not.
func (k checker) approvals(a Approvals, listeners []Listener) {
	if a.Presence == PresencePasskey && !slices.ContainsFunc(listeners, servesConsole) {
		k.report.also("approvals.presence", "passkey needs the console, which is served on loopback alone: add 127.0.0.1:7866 to listen.http")
	}
	if t, given := a.WaitTime(); a.Wait != "auto" && (!given || t < 0 || t > maxWait) {
		k.report.also("approvals.wait", "this must be auto, or a time of at most 1h with its unit, such as 50s")
	}
	k.webhook(a.Notify)
}

// webhook checks the receiver of notices.
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
			k.report.warn(key, "http is not encrypted, so others on the network can read what is sent; write https")
		}
	}
	if s := n.Secret.Reveal(); s != "" && !k.report.failed[key+"_secret"] && !signs(s) {
		k.report.fail(key+"_secret", "this must be whsec_ and base64, or any text, of 24 bytes at least")
	}
}

// signs reports whether a text can be a webhook's secret.
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
