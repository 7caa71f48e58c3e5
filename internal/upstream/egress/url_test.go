package egress

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func TestCheckURLAccepts(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://example.com/mcp":            "https://example.com/mcp",
		"HTTPS://EXAMPLE.com/MCP?key=A&b=c":  "https://example.com/MCP?key=A&b=c",
		"http://example.com":                 "http://example.com",
		"http://example.com:08080/":          "http://example.com:8080/",
		"http://127.0.0.1:7866/mcp":          "http://127.0.0.1:7866/mcp",
		"http://[::1]:7866/mcp":              "http://[::1]:7866/mcp",
		"http://[0:0:0:0:0:0:0:1]/":          "http://[::1]/",
		"http://[2001:DB8::A]/":              "http://[2001:db8::a]/",
		"https://xn--bcher-kva.example/":     "https://xn--bcher-kva.example/",
		"https://a_b.example/%41%2f?q=%23":   "https://a_b.example/%41%2f?q=%23",
		"https://host/p?u=http://a@b/c\\":    "",
		"https://1password.example/":         "https://1password.example/",
		"https://example.c0m/":               "https://example.c0m/",
		"http://localhost:1/":                "http://localhost:1/",
		"http://example.com/a//b/../c;d=e?f": "http://example.com/a//b/../c;d=e?f",
	} {
		u, err := CheckURL(raw)
		switch {
		case want == "" && err == nil:
			t.Errorf("%q passes", raw)
		case want != "" && (err != nil || u.String() != want):
			t.Errorf("%q became %v, %v, want %s", raw, u, err, want)
		}
	}
}

func TestCheckURLRefuses(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		// scheme and shape
		"", "example.com", "//example.com/", "/path", "ftp://example.com/", "file:///etc/passwd", "javascript:alert(1)", "http:",
		"http:example.com", "http:/example.com", "http://", "http:///path", "https://?q", "ws://example.com", "unix:///run/x",
		"http+unix://x", "data:,x", "http://:80/", "https://#",
		// user information
		"http://user@example.com/", "http://user:secret@example.com/", "http://@example.com/", "http://a@b@c/", "http://:@x/",
		"http://127.0.0.1@example.com/", "http://example.com%40127.0.0.1/", "http://example.com#@127.0.0.1/",
		// fragments, backslashes, spaces and controls
		"http://example.com/#", "http://example.com/#frag", "http://example.com\\@127.0.0.1/", "http://example.com/a\\b",
		"http:\\\\example.com", " http://example.com", "http://example.com ", "http://exa mple.com", "http://example.com/a b",
		"http://example.com/\r\nHost: x", "http://example.com/\x00", "http://exam\tple.com/", "http://example.com/\x7f",
		"http://%00/", "http://%31%32%37.0.0.1/", "http://exa%6dple.com/",
		// brackets
		"http://[example.com]/", "http://[127.0.0.1]/", "http://[]/", "http://[::1/", "http://::1]/", "http://::1/", "http://[::1]x/",
		"http://x[::1]/", "http://[[::1]]/", "http://[::1]:x/", "http://[::1%25lo]/", "http://[fe80::1%25eth0]/", "http://[::1%lo]/",
		"http://[v1.x]/", "http://[::1]]/", "http://[0x7f.1]/", "http://[::1]@example.com/", "http://[metadata.google.internal]/",
		"http://[::127.0.0.256]/",
		// numeric hosts
		"http://2130706433/", "http://0x7f000001/", "http://0x7f.0.0.1/", "http://0177.0.0.1/", "http://127.1/", "http://127.0.1/",
		"http://0/", "http://0x/", "http://0X7F.1/", "http://1.2.3.4.5/", "http://256.0.0.1/", "http://127.0.0.01/", "http://1.2.3/",
		"http://example.123/", "http://example.0x1f/", "http://127.0.0.1./", "http://127.0.0.1.:80/", "http://2130706433./",
		// names
		"http://example.com./", "http://example.com../", "http://.example.com/", "http://a..b/", "http://./", "http://../",
		"http://localhost./", "http://bücher.example/", "http://１２７.0.0.1/", "http://127。0。0。1/", "http://ⓛocalhost/",
		"http://exa*mple.com/", "http://a,b/", "http://a;b/", "http://a!b/", "http://$x/", "http://a+b/", "http://{host}/",
		"http://" + strings.Repeat("a", 64) + ".example/", "http://" + strings.Repeat("a.", 130) + "example/",
		// ports
		"http://example.com:/", "http://example.com:0/", "http://example.com:65536/", "http://example.com:-1/", "http://example.com:+1/",
		"http://example.com:80:80/", "http://example.com:http/", "http://example.com:8 0/", "http://127.0.0.1:/", "http://[::1]:/",
	} {
		if u, err := CheckURL(raw); err == nil {
			t.Errorf("%q passes as %s", raw, u)
		}
	}
}

// A URL may carry a key in its query, a rejected one in its user information.
func TestCheckURLDoesNotQuoteTheURL(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"http://u:canary@example.com/", "http://example.com:canary/", "http://example.com/%zz?key=canary", "canary://x/",
		"http://example.com/?key=canary#", "http://canary./", "http://[canary]/", "http://exa%zzcanary/", "http://canary.1/",
		"http://example.com/\x01canary", "1http://canary",
	} {
		if _, err := CheckURL(raw); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

func TestOrigin(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://Example.com/a":     "https://example.com:443",
		"https://example.com:443/b": "https://example.com:443",
		"http://example.com":        "http://example.com:80",
		"http://[::1]/":             "http://[::1]:80",
		"http://[0::1]:8080/":       "http://[::1]:8080",
	} {
		u, err := CheckURL(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := Origin(u); got != want {
			t.Errorf("Origin(%s) = %s, want %s", raw, got, want)
		}
	}
}

// Whatever passes has a host that is a canonical literal or a plain name, and passes again unchanged.
func FuzzCheckURL(f *testing.F) {
	for _, seed := range []string{"http://[::1]:80/a?b", "https://example.com", "http://0x7f.1/", "http://127.0.0.1.", "http:x", "http://a@b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := CheckURL(raw)
		if err != nil {
			return
		}
		again, err := CheckURL(u.String())
		if err != nil || again.String() != u.String() || again.Host != u.Host {
			t.Fatalf("%q passes as %q, which is then %v, %v", raw, u, again, err)
		}
		host := u.Hostname()
		addr, err := netip.ParseAddr(host)
		if err == nil && (addr.String() != host || addr.Zone() != "") {
			t.Fatalf("%q has the literal %q, in short %s", raw, host, addr)
		}
		if err != nil && (strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || host == "" || strings.HasSuffix(host, ".")) {
			t.Fatalf("%q has the name %q", raw, host)
		}
		if std, err := url.Parse(u.String()); err != nil || std.Host != u.Host || std.User != nil {
			t.Fatalf("%q is read differently by net/url: %v, %v", raw, std, err)
		}
	})
}
