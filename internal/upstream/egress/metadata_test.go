package egress

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"testing"
)

// documentedMetadata are addresses of clouds' metadata services, from the clouds' own documentation and cloud-init's.
var documentedMetadata = map[string]string{
	"169.254.169.254": "AWS, Azure, Google, Oracle, OpenStack, DigitalOcean, Hetzner and others",
	"fd00:ec2::254":   "AWS", "fd00:ec2::23": "AWS EKS", "169.254.170.2": "AWS ECS", "169.254.170.23": "AWS EKS",
	"fd20:ce::254":    "Google",
	"168.63.129.16":   "Azure",
	"100.100.100.200": "Alibaba", "fd00:100::100:200": "Alibaba",
	"192.0.0.192": "Oracle", "fd00:c1::a9fe:a9fe": "Oracle",
	"169.254.42.42": "Scaleway", "fd00:42::42": "Scaleway",
	"fd00:a9fe:a9fe::1": "Akamai", "fe80::a9fe:a9fe": "OpenStack",
	"169.254.0.23": "Tencent", "169.254.10.10": "Tencent",
	"100.96.0.96": "Volcengine",
}

func refusedAlways(t *testing.T, addr netip.Addr, why string) {
	t.Helper()
	if got := Classify(addr); got != Metadata {
		t.Errorf("%s (%s) is %s, want %s", addr, why, got, Metadata)
	}
	for _, allow := range []bool{false, true} {
		if err := (Policy{AllowPrivate: allow}).Judge(addr); !errors.Is(err, ErrForbidden) {
			t.Errorf("%s (%s) with allow_private %v: %v", addr, why, allow, err)
		}
		if err := CheckLiteral(&url.URL{Host: "[" + addr.String() + "]:80"}, allow); addr.Is6() && !errors.Is(err, ErrForbidden) {
			t.Errorf("%s (%s) as a literal with allow_private %v: %v", addr, why, allow, err)
		}
	}
}

func TestMetadataAddressesAreAlwaysRefused(t *testing.T) {
	t.Parallel()
	for a, cloud := range documentedMetadata {
		refusedAlways(t, netip.MustParseAddr(a), cloud)
	}
	for _, r := range table { // a row that no documentation stands for has no place in the table
		if r.class == Metadata && documentedMetadata[r.prefix.Addr().String()] == "" && r.prefix.String() != "fd00:ec2::/32" {
			t.Errorf("%s is documented nowhere", r.prefix)
		}
	}
}

// embeddings are the ways to carry an IPv4 address in an IPv6 address, each behind a prefix that is drawn: the offsets are
// of RFC 6052 (translation), 3056 (6to4), 4380 (Teredo), 5214 (ISATAP) and 4291 (mapped, compatible).
var embeddings = map[string]func(b *[16]byte, v4 [4]byte){
	"RFC 6052 /32": func(b *[16]byte, v [4]byte) { copy(b[4:], v[:]); b[8] = 0 },
	"RFC 6052 /40": func(b *[16]byte, v [4]byte) { copy(b[5:], v[:3]); b[8] = 0; b[9] = v[3] },
	"RFC 6052 /48": func(b *[16]byte, v [4]byte) { copy(b[6:], v[:2]); b[8] = 0; copy(b[9:], v[2:]) },
	"RFC 6052 /56": func(b *[16]byte, v [4]byte) { b[7] = v[0]; b[8] = 0; copy(b[9:], v[1:]) },
	"RFC 6052 /64": func(b *[16]byte, v [4]byte) { b[8] = 0; copy(b[9:], v[:]) },
	"RFC 6052 /96": func(b *[16]byte, v [4]byte) { copy(b[12:], v[:]) },
	"64:ff9b::/96": func(b *[16]byte, v [4]byte) { *b = [16]byte{0, 0x64, 0xff, 0x9b}; copy(b[12:], v[:]) },
	"64:ff9b:1::/48": func(b *[16]byte, v [4]byte) {
		copy(b[:], []byte{0, 0x64, 0xff, 0x9b, 0, 1, v[0], v[1], 0, v[2], v[3]})
	},
	"6to4":          func(b *[16]byte, v [4]byte) { copy(b[:], []byte{0x20, 0x02, v[0], v[1], v[2], v[3]}) },
	"Teredo server": func(b *[16]byte, v [4]byte) { copy(b[:], []byte{0x20, 0x01, 0, 0, v[0], v[1], v[2], v[3]}) },
	"Teredo client": func(b *[16]byte, v [4]byte) {
		copy(b[:], []byte{0x20, 0x01, 0, 0})
		copy(b[12:], []byte{^v[0], ^v[1], ^v[2], ^v[3]})
	},
	"ISATAP":     func(b *[16]byte, v [4]byte) { copy(b[8:], []byte{0, 0, 0x5e, 0xfe, v[0], v[1], v[2], v[3]}) },
	"mapped":     func(b *[16]byte, v [4]byte) { *b = [16]byte{10: 0xff, 11: 0xff}; copy(b[12:], v[:]) },
	"SIIT":       func(b *[16]byte, v [4]byte) { *b = [16]byte{8: 0xff, 9: 0xff}; copy(b[12:], v[:]) },
	"compatible": func(b *[16]byte, v [4]byte) { *b = [16]byte{}; copy(b[12:], v[:]) },
}

func TestMetadataAddressesAreRefusedInEveryEmbedding(t *testing.T) {
	t.Parallel()
	prefixes := []byte{0xfc, 0xfd, 0x20, 0x2a, 0xfe} // unique local and global; link-local by 0xfe
	for a := range documentedMetadata {
		v4 := netip.MustParseAddr(a)
		if !v4.Is4() {
			continue
		}
		for name, embed := range embeddings {
			for _, first := range prefixes {
				for range 20 {
					var b [16]byte
					for i := range b {
						b[i] = byte(rand.Uint32())
					}
					b[0] = first
					embed(&b, v4.As4())
					refusedAlways(t, netip.AddrFrom16(b), name+" of "+a)
					if zoned := netip.AddrFrom16(b).WithZone("eth0"); Classify(zoned) != Metadata {
						t.Errorf("%s is %s", zoned, Classify(zoned))
					}
				}
			}
		}
	}
}

// An address next to that of a metadata service keeps its own class.
func TestNeighboursOfMetadataAddressesKeepTheirClass(t *testing.T) {
	t.Parallel()
	for a, want := range map[string]Class{
		"fd00:42::41": Private, "fd00:42::43": Private, "fd20:ce::253": Private, "fd00:c1::1": Private, "fd00:100::1": Private,
		"100.100.100.199": Shared, "100.96.0.97": Shared, "fd12:3456:789a::a9fe:a9ff": Private, "2a00::a9fe:1": Global,
		"192.0.0.193": Shared,
	} {
		if got := Classify(netip.MustParseAddr(a)); got != want {
			t.Errorf("%s is %s, want %s", a, got, want)
		}
	}
}

func TestMetadataNamesAreAlwaysRefused(t *testing.T) {
	t.Parallel()
	for host, refused := range map[string]bool{
		"metadata.google.internal": true, "METADATA.Google.Internal.": true, "a.metadata.google.internal": true,
		"metadata.goog": true, "metadata": true, "instance-data": true, "instance-data.ec2.internal": true,
		"metadata.tencentyun.com": true, "metadata.platformequinix.com": true, "metadata.packet.net": true,
		"rancher-metadata":     true,
		"metadata.example.com": false, "x.metadata": false, "metadata.google.internal.example": false, "mymetadata.goog": false,
	} {
		for _, allow := range []bool{false, true} {
			if err := CheckLiteral(&url.URL{Host: host}, allow); errors.Is(err, ErrForbidden) != refused {
				t.Errorf("%s with allow_private %v: %v", host, allow, err)
			}
		}
		_, err := dialer(Options{AllowPrivate: true, Dial: 1})(t.Context(), "tcp", host+":80") // too short for any look-up
		if errors.Is(err, ErrForbidden) != refused {
			t.Errorf("%s dialled: %v", host, err)
		}
	}
}
