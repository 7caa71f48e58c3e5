package listen

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// Origin.Client is the address that a trusted proxy names: the last one in its header that is
// not a proxy's. Headers of other senders and malformed headers name no client.
func TestOnlyATrustedProxyNamesTheClient(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("127.0.0.1/32")}
	proxies := []string{"10.1.2.3:4", "[fd00::1]:4", "127.0.0.1:4", "[::ffff:10.1.2.3]:4"}
	strangers := []string{"192.0.2.9:4", "[2001:db8::9]:4", "127.0.0.2:4", "[::1]:4", "11.0.0.1:4"}
	xff, fwd := "X-Forwarded-For", "Forwarded"
	for _, tc := range []struct {
		name   string
		header http.Header
		want   string // empty: no client
	}{
		{"nothing", nil, ""},
		{"an address", http.Header{xff: {"198.51.100.1"}}, "198.51.100.1"},
		{"with a port", http.Header{xff: {"198.51.100.1:80"}}, "198.51.100.1"},
		{"an IPv6 address", http.Header{xff: {"2001:db8::1"}}, "2001:db8::1"},
		{"in brackets with a port", http.Header{xff: {"[2001:db8::1]:80"}}, "2001:db8::1"},
		{"in brackets", http.Header{xff: {"[2001:db8::1]"}}, "2001:db8::1"},
		{"mapped", http.Header{xff: {"::ffff:198.51.100.1"}}, "198.51.100.1"},
		{"what the client wrote before is not read", http.Header{xff: {"127.0.0.1, 203.0.113.7, 198.51.100.1"}}, "198.51.100.1"},
		{"nor in a line of its own", http.Header{xff: {"203.0.113.7", "198.51.100.1"}}, "198.51.100.1"},
		{"proxies of ours in between", http.Header{xff: {"203.0.113.7, 198.51.100.1, 10.9.9.9, fd00::2"}}, "198.51.100.1"},
		{"proxies alone", http.Header{xff: {"10.9.9.9"}}, "10.9.9.9"},
		{"loopback is an address like others", http.Header{xff: {"::1"}}, "::1"},
		{"no address", http.Header{xff: {"unknown"}}, ""},
		{"no address at the end", http.Header{xff: {"198.51.100.1, unknown"}}, ""},
		{"empty at the end", http.Header{xff: {"198.51.100.1,"}}, ""},
		{"a zone", http.Header{xff: {"fe80::1%eth0"}}, ""},
		{"half a bracket", http.Header{xff: {"[2001:db8::1"}}, ""},
		{"numbers that are no address", http.Header{xff: {"2130706433"}}, ""},
		{"octal", http.Header{xff: {"0177.0.0.1"}}, ""},
		{"endless", http.Header{xff: {strings.Repeat("10.0.0.1,", 5000) + "10.0.0.1"}}, ""},
		{"RFC 7239", http.Header{fwd: {"for=198.51.100.1;proto=http;by=10.0.0.1"}}, "198.51.100.1"},
		{"in any case and quoted", http.Header{fwd: {`By=_x;FOR="[2001:db8::1]:80"`}}, "2001:db8::1"},
		{"a list", http.Header{fwd: {"for=127.0.0.1, for=198.51.100.1, for=10.0.0.7"}}, "198.51.100.1"},
		{"hidden", http.Header{fwd: {"for=_hidden"}}, ""},
		{"unknown", http.Header{fwd: {"for=198.51.100.1, for=unknown"}}, ""},
		{"without for", http.Header{fwd: {"for=198.51.100.1, proto=https"}}, ""},
		{"twice in one element", http.Header{fwd: {"for=198.51.100.1;for=203.0.113.7"}}, ""},
		{"both and the same", http.Header{fwd: {"for=198.51.100.1"}, xff: {"198.51.100.1"}}, "198.51.100.1"},
		{"both and different", http.Header{fwd: {"for=203.0.113.7"}, xff: {"198.51.100.1"}}, ""},
		{"both and one of no use", http.Header{fwd: {"for=_x"}, xff: {"198.51.100.1"}}, ""},
		{"another header", http.Header{"X-Real-Ip": {"198.51.100.1"}, "Client-Ip": {"198.51.100.1"}}, ""},
	} {
		for _, from := range append(proxies, strangers...) {
			want := tc.want
			for _, s := range strangers {
				if s == from {
					want = ""
				}
			}
			for _, with := range [][]netip.Prefix{trusted, nil} {
				if with == nil {
					want = ""
				}
				o := &Origin{Listener: &Listener{Spec: Spec{TrustedProxies: with}}, Remote: netip.MustParseAddrPort(from)}
				got := o.Client(tc.header)
				if fmt.Sprint(got) != fmt.Sprint(parsed(want)) {
					t.Errorf("%s, from %s, trusting %v: %v, want %q", tc.name, from, with, got, want)
				}
			}
		}
	}
	if (*Origin)(nil).Client(http.Header{xff: {"198.51.100.1"}}).IsValid() {
		t.Error("a nil origin names a client")
	}
}

func parsed(s string) netip.Addr {
	a, _ := netip.ParseAddr(s)
	return a
}

// FuzzForwarded: a client's address has no zone and is not an IPv4 address in IPv6 form.
func FuzzForwarded(f *testing.F) {
	f.Add("for=1.2.3.4", "1.2.3.4")
	f.Add(`for="[::1]:1",`, "[")
	o := &Origin{Listener: &Listener{Spec: Spec{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}, Remote: netip.MustParseAddrPort("10.0.0.1:1")}
	f.Fuzz(func(t *testing.T, forwarded, plain string) {
		for _, h := range []http.Header{{"Forwarded": {forwarded}}, {"X-Forwarded-For": {plain}}, {"Forwarded": {forwarded}, "X-Forwarded-For": {plain}}} {
			if a := o.Client(h); a.IsValid() && (a.Zone() != "" || a.Is4In6()) {
				t.Errorf("%q %q: %v", forwarded, plain, a)
			}
		}
	})
}
