package listen

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// rules holds the accepted Host and Origin values of one listener, computed once after
// the bind. They are exact: a Host is one of the daemon's names with its port, or the
// literal address that the connection arrived on. The port may be missing only if it is
// the default of the scheme.
type rules struct {
	unix       bool
	scheme     string // "http://" or "https://"
	standard   bool   // the port is the default of the scheme
	hosts      []string
	origins    []string
	configured []string // Spec.Origins
}

// unixRules returns the rules of a Unix socket: a client has to make up a host name, and
// may use these two.
func unixRules() rules {
	return rules{
		unix:    true,
		hosts:   []string{"localhost", "doorward"},
		origins: []string{"http://localhost", "http://doorward"},
	}
}

// tcpRules returns the rules of a TCP listener. ends are the bound addresses, all with
// one port.
func tcpRules(s Spec, a address, ends []netip.AddrPort) rules {
	port := ends[0].Port()
	r := rules{scheme: "http://", standard: port == 80}
	if s.CertFile != "" {
		r.scheme, r.standard = "https://", port == 443
	}
	for _, end := range ends {
		r.own(hostForm(end.Addr()), port)
	}
	if a.loopback {
		r.own("localhost", port)
	}
	if a.name != "" {
		r.own(a.name, port)
	}
	for _, h := range s.Hosts {
		r.further(h, port)
	}
	for _, o := range s.Origins {
		if validOrigin(o) {
			r.configured = append(r.configured, strings.ToLower(o))
		}
	}
	return r
}

// own accepts a host of the daemon on this port, as Host and as Origin.
func (r *rules) own(host string, port uint16) {
	full := strings.ToLower(host) + ":" + strconv.Itoa(int(port))
	r.hosts = append(r.hosts, full)
	r.origins = append(r.origins, r.scheme+full)
	if r.standard {
		r.hosts = append(r.hosts, strings.ToLower(host))
		r.origins = append(r.origins, r.scheme+strings.ToLower(host))
	}
}

// further accepts an entry of `hosts`. An entry without a port is accepted as it is,
// because a proxy in front may send it so, and with this port. Its origin is accepted on
// this port only; other origins belong into `origins`.
func (r *rules) further(entry string, port uint16) {
	name, p, ok := hostEntry(entry)
	switch {
	case !ok:
	case p == nil:
		r.hosts = append(r.hosts, strings.ToLower(name))
		r.own(name, port)
	case *p == port:
		r.own(name, port)
	default:
		r.hosts = append(r.hosts, strings.ToLower(entry))
	}
}

// hostEntry parses NAME, NAME:PORT, or the same with an IP literal.
func hostEntry(entry string) (host string, port *uint16, ok bool) {
	host, rest := cutPort(entry)
	if rest != "" {
		p, good := parsePort(rest)
		if !good {
			return "", nil, false
		}
		port = &p
	}
	if _, literal := parseLiteral(host); !literal && !isName(host) {
		return "", nil, false
	}
	return host, port, true
}

// validOrigin accepts SCHEME://AUTHORITY without anything after it. "null" is the origin
// of anonymous frames, so it is never accepted.
func validOrigin(o string) bool {
	scheme, authority, ok := strings.Cut(o, "://")
	return ok && scheme != "" && authority != "" && !strings.ContainsAny(authority, "/?#@\\* \t")
}

// neverMatch describes the entries of hosts and origins that no request can match; empty:
// none.
func neverMatch(s Spec) string {
	var odd []string
	for _, h := range s.Hosts {
		if _, _, ok := hostEntry(h); !ok {
			odd = append(odd, "hosts entry "+strconv.Quote(h))
		}
	}
	for _, o := range s.Origins {
		if !validOrigin(o) {
			odd = append(odd, "origins entry "+strconv.Quote(o))
		}
	}
	if len(odd) == 0 {
		return ""
	}
	return strings.Join(odd, ", ") + " can never match"
}

// HostAllowed reports whether a request with this Host may be served. localAddr is the
// address that the connection arrived on. An allowed Host causes no allocation.
func (l *Listener) HostAllowed(host string, localAddr netip.AddrPort) bool {
	return slices.Contains(l.rules.hosts, host) || // the usual spelling
		l.rules.arrivedOn(host, localAddr) ||
		slices.ContainsFunc(l.rules.hosts, func(h string) bool { return equalFold(host, h) })
}

// OriginAllowed reports whether a request with this Origin may be served. Empty means
// that the header is missing, so the client is not a browser. Origin.OriginAllowed also
// accepts the literal address that the connection arrived on.
func (l *Listener) OriginAllowed(origin string) bool {
	return origin == "" || slices.Contains(l.rules.origins, origin) || slices.Contains(l.rules.configured, origin)
}

// originAllowedOn is OriginAllowed with the address that the connection arrived on.
func (l *Listener) originAllowedOn(origin string, localAddr netip.AddrPort) bool {
	if l.OriginAllowed(origin) {
		return true
	}
	host, ok := strings.CutPrefix(origin, l.rules.scheme)
	return ok && l.rules.arrivedOn(host, localAddr)
}

// arrivedOn reports whether host is the literal address and port that the connection
// arrived on. A literal cannot be rebound by a name server.
func (r *rules) arrivedOn(host string, localAddr netip.AddrPort) bool {
	if r.unix || !localAddr.IsValid() {
		return false
	}
	literal, rest := cutPort(host)
	if rest == "" {
		if !r.standard {
			return false
		}
	} else if port, ok := parsePort(rest); !ok || port != localAddr.Port() {
		return false
	}
	ip, ok := parseLiteral(literal)
	return ok && ip == localAddr.Addr().Unmap().WithZone("")
}

// cutPort splits off ":PORT", with the colon. A colon inside brackets does not count;
// without brackets the last one does.
func cutPort(host string) (name, port string) {
	i := strings.LastIndexByte(host, ':')
	if i < 0 || strings.IndexByte(host[i:], ']') >= 0 {
		return host, ""
	}
	return host[:i], host[i:]
}

// parseLiteral parses an IP literal of a Host: IPv6 in brackets, no zone, no mapped form.
func parseLiteral(s string) (netip.Addr, bool) {
	if s == "" {
		return netip.Addr{}, false
	}
	bracketed := s[0] == '['
	if bracketed {
		if s[len(s)-1] != ']' {
			return netip.Addr{}, false
		}
		s = s[1 : len(s)-1]
	} else if s[0] < '0' || s[0] > '9' {
		return netip.Addr{}, false // avoids the parser, and its error, for names
	}
	ip, err := netip.ParseAddr(s)
	if err != nil || ip.Zone() != "" || ip.Is4In6() || ip.Is6() != bracketed {
		return netip.Addr{}, false
	}
	return ip, true
}

func hostForm(ip netip.Addr) string {
	ip = ip.WithZone("")
	if ip.Is6() {
		return "[" + ip.String() + "]"
	}
	return ip.String()
}
