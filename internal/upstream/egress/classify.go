package egress

import (
	"net/netip"
	"slices"
)

// Class is the purpose of an address, by the IANA special-purpose address registries and the clouds'
// documentation.
type Class uint8

// Classes of addresses. The zero value is not an address.
const (
	Invalid     Class = iota
	Global            // global unicast: may be dialled
	Loopback          // this host
	Unspecified       // the wildcard and the rest of 0.0.0.0/8; dialling it reaches loopback
	Private           // private, unique local, site-local
	Shared            // carrier-grade NAT, protocol assignments, benchmarking
	LinkLocal
	Multicast
	Reserved // reserved, documentation, unallocated
	Embedded // IPv6 with an IPv4 address inside that a host on the path extracts
	Metadata // where a cloud hands out credentials
	classSentinel
)

var classNames = [classSentinel]string{
	Invalid: "invalid", Global: "global", Loopback: "loopback", Unspecified: "wildcard", Private: "private",
	Shared: "shared", LinkLocal: "link-local", Multicast: "multicast", Reserved: "reserved",
	Embedded: "embedded IPv4", Metadata: "cloud metadata",
}

func (c Class) String() string {
	if c >= classSentinel {
		return classNames[Invalid]
	}
	return classNames[c]
}

type row struct {
	prefix netip.Prefix
	class  Class
}

func rows(class Class, prefixes ...string) []row {
	var out []row
	for _, p := range prefixes {
		out = append(out, row{netip.MustParsePrefix(p), class})
	}
	return out
}

// table lists the addresses that are not plain global unicast. The first row that contains an address decides,
// so metadata services come before the ranges that contain them. Sources: IANA IPv4 and IPv6 special-purpose
// registries and the clouds' documentation, as of 2026-11.
var table = slices.Concat(
	rows(Metadata,
		"169.254.169.254/32",                                     // most clouds
		"169.254.170.2/32", "169.254.170.23/32", "fd00:ec2::/32", // AWS
		"fd20:ce::254/128",                            // Google
		"168.63.129.16/32",                            // Azure, a public address
		"100.100.100.200/32", "fd00:100::100:200/128", // Alibaba
		"192.0.0.192/32", "fd00:c1::a9fe:a9fe/128", // Oracle
		"169.254.42.42/32", "fd00:42::42/128", // Scaleway
		"fd00:a9fe:a9fe::1/128", "fe80::a9fe:a9fe/128", // Akamai, OpenStack
		"169.254.0.23/32", "169.254.10.10/32", // Tencent
		"100.96.0.96/32"), // Volcengine
	rows(Loopback, "127.0.0.0/8", "::1/128"),
	rows(Unspecified, "0.0.0.0/8", "::/128"),
	rows(Private, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"),
	rows(Shared, "100.64.0.0/10", "192.0.0.0/24", "198.18.0.0/15"),
	rows(LinkLocal, "169.254.0.0/16", "fe80::/10"),
	rows(Multicast, "224.0.0.0/4", "ff00::/8"),
	rows(Reserved, "240.0.0.0/4", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "192.88.99.0/24",
		"100::/64", "2001:2::/48", "2001:10::/28", "2001:20::/28", "2001:db8::/32", "3fff::/20", "5f00::/16"),
	rows(Embedded, "::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"),
)

// globalIPv6 is the space that is allocated as global unicast; the rest of the IPv6 space is unallocated.
var globalIPv6 = netip.MustParsePrefix("2000::/3")

// Classify returns the class of an address. An IPv4-mapped address has the class of its IPv4 address; a zone is
// ignored. An IPv6 address that carries the IPv4 address of a metadata service is Metadata, whatever its
// prefix.
func Classify(a netip.Addr) Class {
	if !a.IsValid() {
		return Invalid
	}
	a = a.Unmap().WithZone("")
	if carriesMetadata(a) {
		return Metadata
	}
	for _, r := range table {
		if r.prefix.Contains(a) {
			return r.class
		}
	}
	if a.Is6() && !globalIPv6.Contains(a) {
		return Reserved
	}
	return Global
}

// carried lists the places of an IPv4 address inside an IPv6 address, as the indexes of its four bytes. RFC
// 6052, 2.2 defines one for each length of a translation prefix and skips byte 8. The last four bytes are also
// used by SIIT, ISATAP and IPv4-compatible addresses.
var carried = [][4]int{
	{12, 13, 14, 15}, // /96
	{9, 10, 11, 12},  // /64
	{7, 9, 10, 11},   // /56
	{6, 7, 9, 10},    // /48
	{5, 6, 7, 9},     // /40
	{4, 5, 6, 7},     // /32, and a Teredo server
	{2, 3, 4, 5},     // 6to4
}

// carriesMetadata reports whether a holds the IPv4 address of a metadata service at a place where a translator
// looks for it. A network chooses its own translation prefix (RFC 6052, 2.2), so every prefix counts; otherwise
// a unique local one could be used with allow_private. An accidental match of four given bytes is unlikely
// enough.
func carriesMetadata(a netip.Addr) bool {
	if !a.Is6() {
		return false
	}
	b := a.As16()
	for _, at := range carried {
		if metadata4([4]byte{b[at[0]], b[at[1]], b[at[2]], b[at[3]]}) {
			return true
		}
	}
	return metadata4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}) // a Teredo client, RFC 4380, 4
}

func metadata4(b [4]byte) bool {
	a := netip.AddrFrom4(b)
	return slices.ContainsFunc(table, func(r row) bool { return r.class == Metadata && r.prefix.Contains(a) })
}
