package egress

import (
	"errors"
	"net/netip"
	"net/url"
	"testing"
)

// Each range of addresses has its class: its first and last address are of it, and their neighbours are
// not.
func TestClassify(t *testing.T) {
	t.Parallel()
	for class, addrs := range map[Class][]string{
		Global: {
			"1.1.1.1", "8.8.8.8", "1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
			"128.0.0.0", "168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0",
			"192.0.1.0", "192.0.3.0", "192.88.98.255", "192.88.100.0", "192.167.255.255", "192.169.0.0", "198.17.255.255",
			"198.20.0.0", "198.51.99.255", "198.51.101.0", "203.0.112.255", "203.0.114.0", "223.255.255.255",
			"2606:4700:4700::1111", "2001:4860:4860::8888", "2003::1", "2001:1::1", "2001:db7:ffff::", "2001:db9::", "3ffe::1",
			"3fff:1000::", "2a00::1", "::ffff:8.8.8.8",
		},
		Loopback:    {"127.0.0.0", "127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1", "::1%lo"},
		Unspecified: {"0.0.0.0", "0.0.0.1", "0.255.255.255", "::", "::ffff:0.0.0.0"},
		Private: {
			"10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255", "192.168.0.0", "192.168.255.255",
			"fc00::", "fdff:ffff::1", "fec0::1", "feff::1", "::ffff:10.0.0.1",
		},
		Shared: {
			"100.64.0.0", "100.127.255.255", "192.0.0.0", "192.0.0.255", "198.18.0.0", "198.19.255.255", "::ffff:100.64.0.1",
		},
		LinkLocal: {"169.254.0.0", "169.254.255.255", "fe80::1", "febf::1", "fe80::1%eth0", "::ffff:169.254.1.1"},
		Multicast: {"224.0.0.0", "224.0.0.251", "239.255.255.255", "ff00::", "ff02::1", "ffff::1", "::ffff:224.0.0.1"},
		Reserved: {
			"240.0.0.0", "255.255.255.255", "192.0.2.0", "192.0.2.255", "198.51.100.1", "203.0.113.1", "192.88.99.1",
			"100::1", "2001:2::1", "2001:10::1", "2001:1f::1", "2001:20::1", "2001:2f::1", "2001:db8::1", "3fff::1", "3fff:fff::1", "5f00::1",
			"4000::1", "1000::1", "8000::1", "e000::1", "100:0:0:1::1", "::1:0:0:0:0", "::ffff:240.0.0.1",
		},
		Embedded: {
			"::2", "::127.0.0.1", "::8.8.8.8", "::ffff:0:127.0.0.1", "64:ff9b::8.8.8.8", "64:ff9b::a9fe:1", "64:ff9b:1::1",
			"64:ff9b:1:ffff::1", "2002::1", "2002:7f00:1::", "2001::1", "2001:0:ffff::1",
		},
		Metadata: {
			"169.254.169.254", "169.254.170.2", "169.254.170.23", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254",
			"168.63.129.16", "100.100.100.200", "192.0.0.192", "::ffff:169.254.169.254", "::ffff:168.63.129.16",
		},
	} {
		for _, a := range addrs {
			if got := Classify(netip.MustParseAddr(a)); got != class {
				t.Errorf("%s is %s, want %s", a, got, class)
			}
		}
	}
	if got := Classify(netip.Addr{}); got != Invalid {
		t.Errorf("no address is %s", got)
	}
}

// Every row decides for at least its own first address: no row is hidden behind another.
func TestNoRowIsHidden(t *testing.T) {
	t.Parallel()
	for _, r := range table {
		if r.prefix != r.prefix.Masked() {
			t.Errorf("%s has bits beyond its length", r.prefix)
		}
		last := r.prefix.Addr()
		for range 300 { // far enough to leave an inner row
			if Classify(last) == r.class {
				break
			}
			last = last.Next()
		}
		if !r.prefix.Contains(last) || Classify(last) != r.class {
			t.Errorf("%s never decides", r.prefix)
		}
	}
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	const never, private, always = "never", "private", "always"
	for a, when := range map[string]string{
		"8.8.8.8": always, "2606:4700::1": always,
		"127.0.0.1": private, "::1": private, "10.1.2.3": private, "192.168.1.1": private, "fd12::1": private, "100.64.1.1": private,
		"::ffff:127.0.0.1": private,
		"0.0.0.0":          never, "::": never, "169.254.1.1": never, "fe80::1": never, "169.254.169.254": never,
		"168.63.129.16": never, "100.100.100.200": never, "fd00:ec2::254": never, "192.0.0.192": never, "224.0.0.1": never,
		"ff02::1": never, "255.255.255.255": never, "192.0.2.1": never, "64:ff9b::7f00:1": never, "::127.0.0.1": never,
	} {
		addr := netip.MustParseAddr(a)
		for _, allow := range []bool{false, true} {
			err := Policy{AllowPrivate: allow}.Judge(addr)
			want := when == always || when == private && allow
			if (err == nil) != want || err != nil && !errors.Is(err, ErrForbidden) {
				t.Errorf("%s with allow_private %v: %v", a, allow, err)
			}
		}
	}
	if err := (Policy{AllowPrivate: true}).Judge(netip.Addr{}); !errors.Is(err, ErrForbidden) {
		t.Errorf("no address: %v", err)
	}
}

func TestCheckLiteral(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][2]bool{ // allowed without and with allow_private
		"https://example.com/mcp":                  {true, true},
		"https://8.8.8.8/":                         {true, true},
		"http://127.0.0.1:80/":                     {false, true},
		"http://[::1]:80/":                         {false, true},
		"http://localhost/":                        {false, true},
		"http://LOCALHOST/":                        {false, true},
		"http://x.localhost/":                      {false, true},
		"http://192.168.0.1/":                      {false, true},
		"http://[::ffff:10.0.0.1]/":                {false, true},
		"http://169.254.169.254/latest":            {false, false},
		"http://0.0.0.0/":                          {false, false},
		"http://[::]/":                             {false, false},
		"http://[::ffff:169.254.169.254]/":         {false, false},
		"http://metadata.google.internal/":         {false, false},
		"http://x.Metadata.google.internal/":       {false, false},
		"http://metadata.google.internal.example/": {true, true},
		"http://notlocalhost/":                     {true, true},
	} {
		u, err := CheckURL(raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		for i, allow := range []bool{false, true} {
			err := CheckLiteral(u, allow)
			if (err == nil) != want[i] || err != nil && !errors.Is(err, ErrForbidden) {
				t.Errorf("%s with allow_private %v: %v", raw, allow, err)
			}
		}
	}
	// Also for a URL that did not come from CheckURL.
	if err := CheckLiteral(&url.URL{Host: "METADATA.google.internal."}, true); err == nil {
		t.Error("the metadata name with a dot passes")
	}
}
