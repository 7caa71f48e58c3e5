package listen

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// maxForwarded bounds how many addresses of a request are read.
const maxForwarded = 32

// Client is the address of the client that a trusted proxy names in Forwarded
// (RFC 7239) or X-Forwarded-For. It is claimed: failures are counted for it and
// the record names it, and nothing else depends on it. It is not valid where
// the connection does not come from a trusted proxy, the header is missing or
// names no address, or both headers are there and differ: a proxy sets one of
// them, and its client may have sent the other.
func (o *Origin) Client(h http.Header) netip.Addr {
	if o == nil || !o.Listener.trusts(o.Remote.Addr()) {
		return netip.Addr{}
	}
	forwarded, plain := h["Forwarded"], h["X-Forwarded-For"]
	var client netip.Addr
	switch {
	case len(forwarded) == 0:
		client = o.Listener.nearest(plain, forwardedAddr)
	case len(plain) == 0:
		client = o.Listener.nearest(forwarded, forwardedFor)
	default:
		client = o.Listener.nearest(forwarded, forwardedFor)
		if o.Listener.nearest(plain, forwardedAddr) != client {
			return netip.Addr{}
		}
	}
	return client
}

// trusts reports whether an address is that of a trusted proxy.
func (l *Listener) trusts(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(l.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// nearest returns the last address in a list that is not a trusted proxy's. Each
// proxy appends the address that called it, so everything before that was chosen
// by the caller of the first trusted proxy.
func (l *Listener) nearest(lines []string, read func(string) (netip.Addr, bool)) (client netip.Addr) {
	rest := strings.Join(lines, ",")
	for range maxForwarded {
		item := rest
		i := strings.LastIndexByte(rest, ',')
		if i >= 0 {
			rest, item = rest[:i], rest[i+1:]
		}
		a, ok := read(strings.TrimSpace(item))
		if !ok {
			return netip.Addr{}
		}
		if client = a; i < 0 || !l.trusts(a) {
			return client
		}
	}
	return netip.Addr{}
}

// forwardedFor is the address of the parameter "for" of an element of Forwarded.
func forwardedFor(element string) (a netip.Addr, ok bool) {
	for pair := range strings.SplitSeq(element, ";") {
		name, value, found := strings.Cut(strings.TrimSpace(pair), "=")
		if !found || !strings.EqualFold(name, "for") {
			continue
		}
		if ok {
			return netip.Addr{}, false // twice
		}
		if inner, quoted := strings.CutPrefix(value, `"`); quoted {
			value = strings.TrimSuffix(inner, `"`)
		}
		if a, ok = forwardedAddr(value); !ok {
			return netip.Addr{}, false
		}
	}
	return a, ok
}

// forwardedAddr reads an address with or without a port, as proxies write it.
func forwardedAddr(text string) (netip.Addr, bool) {
	if end, err := netip.ParseAddrPort(text); err == nil {
		return end.Addr().Unmap(), end.Addr().Zone() == ""
	}
	if inner, ok := strings.CutPrefix(text, "["); ok {
		text, ok = strings.CutSuffix(inner, "]")
		if !ok {
			return netip.Addr{}, false
		}
	}
	a, err := netip.ParseAddr(text)
	return a.Unmap(), err == nil && a.Zone() == ""
}
