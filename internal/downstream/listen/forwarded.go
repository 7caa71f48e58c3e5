package listen

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// maxForwarded is the largest number of addresses of a request that are read.
const maxForwarded = 32

// Client returns the address of the client that a trusted proxy names in Forwarded (RFC
// 7239) or X-Forwarded-For. It is claimed: failures are counted for it and the record
// contains it, and nothing else depends on it. It is the zero Addr if the connection does
// not come from a trusted proxy, if the header is missing or contains no address, and if
// both headers are present and differ: a proxy sets one of them, and its client may have
// sent the other.
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

// IsLocal reports whether a request comes from this machine, as far as is known: it arrived on a
// local listener, and not from a trusted proxy that forwards it for a client elsewhere. A header of
// a trusted proxy that names no client, or several addresses, counts as one about a client elsewhere:
// its client may have made the header useless, or begun it with an address of this machine.
func (o *Origin) IsLocal(h http.Header) bool {
	if o == nil || !o.Listener.Local() {
		return false
	}
	named := slices.Concat(h["Forwarded"], h["X-Forwarded-For"])
	if len(named) == 0 || !o.Listener.trusts(o.Remote.Addr()) {
		return true
	}
	return len(named) == 1 && !strings.Contains(named[0], ",") && o.Client(h).IsLoopback()
}

// trusts reports whether an address is that of a trusted proxy.
func (l *Listener) trusts(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(l.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// nearest returns the last address in a list that does not belong to a trusted proxy.
// Each proxy appends the address that called it, so the caller of the first trusted proxy
// chose everything before that address.
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

// forwardedFor returns the address of the parameter "for" of an element of Forwarded.
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

// forwardedAddr parses an address with or without a port, as proxies write it.
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
