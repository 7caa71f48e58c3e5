// Package egress is the only dialler: every connection to an upstream server over the network is opened here.
//
// Invariant: no connection is opened to an address that its upstream may not use, whatever a name resolved to
// before. Every candidate address is judged inside the dialler, immediately before it is dialled; there is no
// second look-up between check and use. Only a configured proxy is used, no redirect is followed, no cookie is
// kept.
//
// Limits: a proxy dials by itself. Literal addresses and forbidden names are still refused here; the proxy
// judges what any other name resolves to. A host that reaches the IPv4 internet only through NAT64 cannot use
// it here, because an address inside an address is refused. The targets to which a permitted server relays are
// not visible here.
package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// ErrForbidden is wrapped by every refusal of an address. The text around it names address and class and is for
// the operator; a caller only gets an upstream failure.
var ErrForbidden = errors.New("address is not allowed as an upstream")

// Policy defines the addresses at which one upstream may be dialled.
type Policy struct {
	// AllowPrivate permits loopback, private and shared addresses; never metadata, link-local, multicast, wildcard or any
	// other special ones.
	AllowPrivate bool
	// Origin limits AllowPrivate to one origin, in the form of the function Origin. Empty: it holds for every
	// dial.
	Origin string
}

// Judge returns nil if a connection to a may be opened, else an error that wraps ErrForbidden.
func (p Policy) Judge(a netip.Addr) error {
	class := Classify(a)
	switch class {
	case Global:
		return nil
	case Loopback, Private, Shared:
		if p.AllowPrivate {
			return nil
		}
		return fmt.Errorf("%s is a %s address and allow_private is not set: %w", a, class, ErrForbidden)
	}
	return fmt.Errorf("%s is a %s address: %w", a, class, ErrForbidden)
}

// at returns the policy for a dial to hostport ("host:port", as the transport writes it).
func (p Policy) at(hostport string) Policy {
	if p.AllowPrivate && p.Origin != "" {
		_, authority, _ := strings.Cut(p.Origin, "://")
		p.AllowPrivate = strings.EqualFold(authority, hostport)
	}
	return p
}

// CheckLiteral checks what can be checked when the configuration is loaded: a literal address, localhost, and
// the names of metadata services. Every other name passes here and is checked when it is dialled. The error
// wraps ErrForbidden.
func CheckLiteral(u *url.URL, allowPrivate bool) error {
	host := u.Hostname()
	if err := checkName(host); err != nil {
		return err
	}
	if isLocalhost(host) {
		host = "127.0.0.1"
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return nil // a name
	}
	return Policy{AllowPrivate: allowPrivate}.Judge(addr)
}

// metadataNames lists the names of the clouds' metadata services, by their documentation.
var metadataNames = []string{
	"metadata.google.internal", "metadata.goog", "metadata", // Google
	"instance-data", "instance-data.ec2.internal", // AWS
	"metadata.tencentyun.com",                             // Tencent
	"metadata.platformequinix.com", "metadata.packet.net", // Equinix, at a public address
	"rancher-metadata",
}

// checkName refuses the names of metadata services, and the names below them, before an address is looked up.
// Behind a proxy it is the only check of a name.
func checkName(host string) error {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	for _, name := range metadataNames {
		if host == name || strings.Contains(name, ".") && strings.HasSuffix(host, "."+name) {
			return fmt.Errorf("%s is the name of a %s service: %w", host, Metadata, ErrForbidden)
		}
	}
	return nil
}

func isLocalhost(host string) bool {
	host = strings.ToLower(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}
