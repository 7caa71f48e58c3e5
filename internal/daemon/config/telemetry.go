package config

import (
	"net/netip"
	"net/url"
	"strings"
)

// telemetry checks the collector's address and headers.
func (k checker) telemetry(t Telemetry) {
	const key = "telemetry.otlp"
	if t.OTLP == "" {
		if len(t.Headers) > 0 && !k.report.failed[key] {
			k.report.fail("telemetry", `its key "otlp" is missing`)
		}
		return
	}
	u, err := url.Parse(t.OTLP)
	switch {
	case k.report.failed[key]:
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		k.report.fail(key, "this must be an http or https address without user information, query or fragment")
	case k.o.CheckURL != nil:
		if err := k.o.CheckURL(t.OTLP, true); err != nil {
			k.report.fail(key, err.Error())
		} else if u.Scheme == "http" && !isLoopback(u.Hostname()) {
			k.report.warn(key, "http is not encrypted, so others on the network can read what is sent, including the headers; write https")
		}
	}
	k.headers("telemetry.headers", t.Headers)
}

// isLoopback reports whether a host is this machine.
func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && a.IsLoopback() && !a.Is4In6()
}
