package listen

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
)

// DefaultPort is the port of a TCP address without one.
const DefaultPort = 7866

// address is a configured TCP address after classification.
type address struct {
	ends     []netip.AddrPort // the addresses to bind; empty for a name
	name     string           // a name other than localhost
	port     uint16
	dual     bool   // empty host: both families' wildcard
	loopback bool   // every end is loopback
	problem  string // why it can never be bound; the other fields are then meaningless
}

// resolver looks up the addresses of a name.
type resolver func(ctx context.Context, name string) ([]netip.Addr, error)

func systemResolver(ctx context.Context, name string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
}

// classify decides what an address is by its text alone; only `localhost` is looked up.
// An address is loopback only if that is certain: mapped forms and forms with a zone are
// excluded before IsLoopback, which would accept them.
func classify(ctx context.Context, text string, lookup resolver) address {
	host, port, problem := splitHostPort(text)
	if problem != "" {
		return address{problem: problem}
	}
	a := address{port: port}
	if host == "" {
		a.dual = true
		a.ends = []netip.AddrPort{netip.AddrPortFrom(netip.IPv6Unspecified(), port)}
		return a
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return a.literal(ip)
	}
	switch {
	case equalFold(host, "localhost"):
		return a.localhost(ctx, lookup)
	case isName(host):
		a.name = host
		return a
	}
	return address{problem: "not an IP address, localhost or a host name; write host:port, such as 127.0.0.1:7866"}
}

// literal classifies an IP address. A mapped address is bound in its IPv4 form, and a
// zone is kept for link-local addresses only. Neither of them counts as loopback.
func (a address) literal(ip netip.Addr) address {
	a.loopback = isLoopback(ip)
	ip = ip.Unmap()
	if !ip.IsLinkLocalUnicast() {
		ip = ip.WithZone("")
	}
	a.ends = []netip.AddrPort{netip.AddrPortFrom(ip, a.port)}
	a.dual = ip == netip.IPv6Unspecified()
	return a
}

func isLoopback(ip netip.Addr) bool {
	return !ip.Is4In6() && ip.Zone() == "" && ip.IsLoopback()
}

// localhost resolves the only name that may be loopback. It is loopback if all its
// addresses are, and all of them are bound. The resolver stores IPv4 addresses in mapped
// form, so they are unmapped first.
func (a address) localhost(ctx context.Context, lookup resolver) address {
	ips, err := lookup(ctx, "localhost")
	if err != nil || len(ips) == 0 {
		return address{problem: "localhost does not resolve: write 127.0.0.1 or [::1]"}
	}
	a.loopback = true
	seen := map[netip.Addr]bool{}
	for _, ip := range ips {
		ip = ip.Unmap()
		a.loopback = a.loopback && isLoopback(ip)
		if !seen[ip] {
			seen[ip] = true
			a.ends = append(a.ends, netip.AddrPortFrom(ip, a.port))
		}
	}
	return a
}

// resolve looks up the addresses of a name. Only listeners that enforce authentication
// have a name here, so the answer does not affect the decision.
func (a address) resolve(ctx context.Context, lookup resolver) (address, error) {
	if a.name == "" {
		return a, nil
	}
	ips, err := lookup(ctx, a.name)
	if err != nil || len(ips) == 0 {
		return a, errors.New("the name does not resolve")
	}
	r := address{port: a.port, name: a.name}
	for _, ip := range ips {
		r.ends = append(r.ends, netip.AddrPortFrom(ip.Unmap(), a.port))
	}
	return r, nil
}

// splitHostPort parses HOST, HOST:PORT, [IPv6], [IPv6]:PORT and a bare IPv6 literal.
// Brackets hold an IPv6 literal only; a port is a plain number.
func splitHostPort(text string) (host string, port uint16, problem string) {
	if text == "" {
		return "", 0, "the address is empty"
	}
	rest := ""
	switch {
	case text[0] == '[':
		var ok bool
		if host, rest, ok = strings.Cut(text[1:], "]"); !ok || !strings.Contains(host, ":") {
			return "", 0, "brackets must hold an IPv6 address"
		}
		if _, err := netip.ParseAddr(host); err != nil {
			return "", 0, "brackets must hold an IPv6 address"
		}
	case strings.Count(text, ":") > 1:
		return text, DefaultPort, ""
	default:
		i := strings.IndexByte(text+":", ':')
		host, rest = text[:i], text[i:]
	}
	if rest == "" {
		return host, DefaultPort, ""
	}
	p, ok := parsePort(rest)
	if !ok {
		return "", 0, "the port must be a number from 0 to 65535"
	}
	return host, p, ""
}

// parsePort parses ":0" to ":65535" without leading zeros.
func parsePort(s string) (uint16, bool) {
	if len(s) < 2 || len(s) > 6 || s[0] != ':' || (s[1] == '0' && len(s) > 2) {
		return 0, false
	}
	n := 0
	for i := 1; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return uint16(n), n <= 65535
}

// isName reports whether s can be a host name. A name whose last label is a number is
// refused, because other parsers read it as an IPv4 address (127.1, 0x7f000001,
// 2130706433), and so is a name that ends with a dot.
func isName(s string) bool {
	if len(s) > 253 {
		return false
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if !isLabel(l) {
			return false
		}
	}
	last := labels[len(labels)-1]
	return strings.Trim(last, "0123456789") != "" && !strings.HasPrefix(strings.ToLower(last), "0x")
}

func isLabel(l string) bool {
	if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
		return false
	}
	for i := range len(l) {
		c := lower(l[i])
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// equalFold compares ASCII without regard to case. strings.EqualFold would also match the
// long s and the Kelvin sign.
func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// addrPort returns the address with IPv4 not mapped; zero if it is not TCP.
func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
