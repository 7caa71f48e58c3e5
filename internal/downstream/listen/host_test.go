package listen

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// on returns a listener with its rules, without opening it.
func on(s Spec, loopback bool, name string, ends ...string) *Listener {
	l := &Listener{Spec: s}
	if s.Network == "unix" {
		l.rules = unixRules()
		return l
	}
	var all []netip.AddrPort
	for _, e := range ends {
		all = append(all, netip.MustParseAddrPort(e))
	}
	l.rules = tcpRules(s, address{loopback: loopback, name: name}, all)
	return l
}

func lists(s string) []string { return strings.Split(s, "|") }

// doors are listeners with the Hosts and Origins that they accept and some that they refuse;
// local is the address that the connection arrived on.
var doors = []struct {
	name    string
	l       *Listener
	local   string
	yes, no string // Hosts
	yesO    string // Origins
	noO     string
}{
	{
		"loopback IPv4", on(Spec{}, true, "", "127.0.0.1:7866"), "127.0.0.1:7866",
		"127.0.0.1:7866|localhost:7866|LOCALHOST:7866|LocalHost:7866",
		"|127.0.0.1|localhost|127.0.0.1:7867|localhost:7867|localhost.:7866|localhost:07866|127.0.0.1:7866.|127.0.0.2:7866|" +
			"[::1]:7866|127.1:7866|0x7f000001:7866|[::ffff:127.0.0.1]:7866|::ffff:127.0.0.1:7866|evil.example:7866|localhost.evil.example:7866|" +
			"evil.localhost:7866|localhost:7866.evil.example|localhost:7866@evil.example|evil@localhost:7866|localhost:7866/|localhost: 7866| localhost:7866|" +
			"localhoſt:7866|doorward|0.0.0.0:7866|127.0.0.1:7866:7866|[127.0.0.1]:7866",
		"|http://127.0.0.1:7866|http://localhost:7866",
		"null|https://localhost:7866|http://localhost|http://localhost:7867|http://evil.example|http://evil.example:7866|http://localhost:7866/|" +
			"http://localhost:7866.evil.example|http://user@localhost:7866|HTTP://localhost:7866|http://LOCALHOST:7866|http://localhost.evil.example:7866|" +
			"localhost:7866|//localhost:7866|http://|file://|http://[::1]:7866|http://localhost:7866 http://evil.example",
	},
	{
		"loopback IPv6", on(Spec{}, true, "", "[::1]:7866"), "[::1]:7866",
		"[::1]:7866|localhost:7866|[0:0:0:0:0:0:0:1]:7866",
		"::1:7866|[::1]|[::1%lo]:7866|[::1%25lo]:7866|127.0.0.1:7866|::1|[::1]7866|[[::1]]:7866|[::2]:7866",
		"http://[::1]:7866|http://localhost:7866",
		"http://::1:7866|http://[::1]|http://[::1]:7866/x",
	},
	{
		"standard port", on(Spec{}, true, "", "127.0.0.1:80"), "127.0.0.1:80",
		"127.0.0.1:80|127.0.0.1|localhost|localhost:80", "localhost:443|127.0.0.2",
		"http://localhost|http://127.0.0.1|http://localhost:80", "https://localhost",
	},
	{
		"TLS on 443", on(Spec{CertFile: "c", Hosts: []string{"mcp.example.com"}}, false, "", "192.0.2.7:443"), "192.0.2.7:443",
		"192.0.2.7|192.0.2.7:443|mcp.example.com|mcp.example.com:443", "localhost|localhost:443|192.0.2.7:80",
		"https://192.0.2.7|https://mcp.example.com", "http://192.0.2.7|http://mcp.example.com|https://localhost",
	},
	{
		"wildcard", on(Spec{}, false, "", "0.0.0.0:7866"), "192.168.1.5:7866",
		"0.0.0.0:7866|192.168.1.5:7866", "localhost:7866|127.0.0.1:7866|192.168.1.6:7866|192.168.1.5|evil.example:7866|[::]:7866",
		"http://0.0.0.0:7866|http://192.168.1.5:7866", "http://192.168.1.6:7866|https://192.168.1.5:7866|http://localhost:7866",
	},
	{
		"dual-stack wildcard over IPv4", on(Spec{}, false, "", "[::]:7866"), "[::ffff:192.168.1.5]:7866",
		"[::]:7866|192.168.1.5:7866", "[::ffff:192.168.1.5]:7866", "http://192.168.1.5:7866", "http://[::ffff:192.168.1.5]:7866",
	},
	{
		"link-local", on(Spec{}, false, "", "[fe80::1%eth0]:7866"), "[fe80::1%eth0]:7866",
		"[fe80::1]:7866", "[fe80::1%eth0]:7866|[fe80::1%25eth0]:7866", "http://[fe80::1]:7866", "http://[fe80::1%eth0]:7866",
	},
	{
		"a name", on(Spec{}, false, "Box.lan", "192.168.1.5:7866"), "192.168.1.5:7866",
		"box.lan:7866|192.168.1.5:7866", "box.lan|box:7866|x.box.lan:7866", "http://box.lan:7866", "http://box.lan",
	},
	{
		"further hosts and origins", on(Spec{
			Hosts:   []string{"Mcp.example.com", "other.example:8443", "10.9.8.7", "third.example:7866", "bad entry", "http://x", "", "*", "*.example.com"},
			Origins: []string{"https://App.example", "vscode-webview://abc", "null", "*", "https://p.example/x"},
		}, true, "", "127.0.0.1:7866"), "127.0.0.1:7866",
		"mcp.example.com|mcp.example.com:7866|other.example:8443|10.9.8.7|10.9.8.7:7866|third.example:7866|localhost:7866",
		"other.example|other.example:7866|third.example|mcp.example.com:8443|bad entry|*|x.example.com|http://x|",
		"https://app.example|vscode-webview://abc|http://mcp.example.com:7866|http://third.example:7866",
		"null|*|https://p.example|https://p.example/x|http://mcp.example.com|https://mcp.example.com:7866|http://other.example:8443|http://app.example",
	},
	{
		"the socket", on(Spec{Network: "unix"}, false, ""), "",
		"localhost|doorward|Doorward", "|localhost:80|127.0.0.1|doorward.evil.example|evil.example|unix",
		"http://localhost|http://doorward", "null|https://localhost|http://evil.example|http://localhost:80",
	},
}

func TestHostAndOriginAreExact(t *testing.T) {
	t.Parallel()
	for _, d := range doors {
		var local netip.AddrPort
		if d.local != "" {
			local = netip.MustParseAddrPort(d.local)
		}
		o := &Origin{Listener: d.l, Local: local}
		for _, h := range lists(d.yes) {
			if !o.HostAllowed(h) {
				t.Errorf("%s: Host %q refused", d.name, h)
			}
		}
		for _, h := range lists(d.no) {
			if o.HostAllowed(h) {
				t.Errorf("%s: Host %q accepted", d.name, h)
			}
		}
		for _, v := range lists(d.yesO) {
			if !o.OriginAllowed(v) {
				t.Errorf("%s: Origin %q refused", d.name, v)
			}
		}
		for _, v := range lists(d.noO) {
			if o.OriginAllowed(v) {
				t.Errorf("%s: Origin %q accepted", d.name, v)
			}
		}
	}
}

// Without the address that a connection arrived on, a listener accepts only its own origins
// and hosts.
func TestTheListenerAloneKnowsItsOwnOrigins(t *testing.T) {
	t.Parallel()
	l := on(Spec{}, false, "", "0.0.0.0:7866")
	if l.OriginAllowed("http://192.168.1.5:7866") || !l.OriginAllowed("http://0.0.0.0:7866") || !l.OriginAllowed("") {
		t.Error("the listener's own origins are wrong")
	}
	if l.HostAllowed("192.168.1.5:7866", netip.AddrPort{}) {
		t.Error("an unknown arrival address matches")
	}
}

// FuzzHost: an accepted Host is, according to net/url and net/netip, the listener's name or
// the address that the connection arrived on, with the listener's port.
func FuzzHost(f *testing.F) {
	for _, d := range doors {
		for _, h := range append(lists(d.yes), lists(d.no)...) {
			f.Add(h)
		}
	}
	local := netip.MustParseAddrPort("192.168.1.5:7866")
	local6 := netip.MustParseAddrPort("[2001:db8::5]:7866")
	l := on(Spec{}, true, "", "127.0.0.1:7866")
	f.Fuzz(func(t *testing.T, host string) {
		for _, at := range []netip.AddrPort{local, local6} {
			if !l.HostAllowed(host, at) {
				continue
			}
			u, err := url.Parse("http://" + host)
			if err != nil || u.Host != host || u.Port() != "7866" || u.User != nil || u.Path != "" {
				t.Fatalf("%q is accepted, net/url reads %+v, %v", host, u, err)
			}
			name := strings.ToLower(u.Hostname())
			ip, err := netip.ParseAddr(name)
			if name != "localhost" && name != "127.0.0.1" && (err != nil || ip != at.Addr()) {
				t.Fatalf("%q is accepted on %v", host, at)
			}
		}
	})
}

// FuzzOrigin: an accepted Origin is only scheme, host and port according to net/url, and
// HostAllowed accepts its host.
func FuzzOrigin(f *testing.F) {
	for _, d := range doors {
		for _, o := range append(lists(d.yesO), lists(d.noO)...) {
			f.Add(o)
		}
	}
	local := netip.MustParseAddrPort("192.168.1.5:7866")
	o := &Origin{Listener: on(Spec{}, true, "", "127.0.0.1:7866"), Local: local}
	f.Fuzz(func(t *testing.T, origin string) {
		if origin == "" || !o.OriginAllowed(origin) {
			return
		}
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || "http://"+u.Host != origin {
			t.Fatalf("%q is accepted, net/url reads %+v, %v", origin, u, err)
		}
		if !o.HostAllowed(u.Host) || u.Port() != "7866" {
			t.Fatalf("%q is accepted, its host %q is not", origin, u.Host)
		}
	})
}

func TestHostAndOriginChecksDoNotAllocate(t *testing.T) {
	for _, d := range doors {
		var local netip.AddrPort
		if d.local != "" {
			local = netip.MustParseAddrPort(d.local)
		}
		o := &Origin{Listener: d.l, Local: local}
		for _, h := range lists(d.yes) {
			if n := testing.AllocsPerRun(100, func() { o.HostAllowed(h) }); n != 0 {
				t.Errorf("%s: Host %q allocates %v times", d.name, h, n)
			}
		}
		for _, v := range lists(d.yesO) {
			if n := testing.AllocsPerRun(100, func() { o.OriginAllowed(v) }); n != 0 {
				t.Errorf("%s: Origin %q allocates %v times", d.name, v, n)
			}
		}
	}
}

func BenchmarkHostAllowed(b *testing.B) {
	o := &Origin{Listener: on(Spec{}, true, "", "127.0.0.1:7866"), Local: netip.MustParseAddrPort("127.0.0.1:7866")}
	b.ReportAllocs()
	for b.Loop() {
		if !o.HostAllowed("localhost:7866") || !o.OriginAllowed("") {
			b.Fatal("refused")
		}
	}
}

func BenchmarkHostAllowedByArrival(b *testing.B) {
	o := &Origin{Listener: on(Spec{}, false, "", "[::]:7866"), Local: netip.MustParseAddrPort("[2001:db8::5]:7866")}
	b.ReportAllocs()
	for b.Loop() {
		if !o.HostAllowed("[2001:db8::5]:7866") {
			b.Fatal("refused")
		}
	}
}
