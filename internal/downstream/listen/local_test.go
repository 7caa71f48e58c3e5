package listen

import (
	"net/http"
	"net/netip"
	"testing"
)

// A request is local over a local listener alone, and not if a trusted proxy forwards it for a
// client that is not certainly on this machine. A header of another sender makes no difference.
func TestARequestIsLocalUnlessAProxyForwardsItFromElsewhere(t *testing.T) {
	t.Parallel()
	headers := []struct {
		lines http.Header
		near  bool // what a trusted proxy says
	}{
		{nil, true},
		{http.Header{"X-Real-Ip": {"198.51.100.1"}}, true},
		{http.Header{"X-Forwarded-For": {"127.0.0.1"}}, true},
		{http.Header{"X-Forwarded-For": {"198.51.100.1, 127.0.0.1"}}, false},
		{http.Header{"Forwarded": {`for="[::1]:4"`}}, true},
		{http.Header{"X-Forwarded-For": {"127.0.0.2"}}, true},
		{http.Header{"X-Forwarded-For": {"198.51.100.1"}}, false},
		{http.Header{"X-Forwarded-For": {"127.0.0.1, 198.51.100.1"}}, false},
		{http.Header{"X-Forwarded-For": {"127.0.0.1", "198.51.100.1"}}, false},
		{http.Header{"X-Forwarded-For": {"127.0.0.1, 10.0.0.7"}}, false},
		{http.Header{"Forwarded": {"for=127.0.0.1", "for=10.0.0.7"}}, false},
		{http.Header{"X-Forwarded-For": {""}}, false},
		{http.Header{"X-Forwarded-For": {"unknown"}}, false},
		{http.Header{"Forwarded": {"for=_hidden"}}, false},
		{http.Header{"Forwarded": {"for=127.0.0.1"}, "X-Forwarded-For": {"198.51.100.1"}}, false},
		{http.Header{"Forwarded": {"for=198.51.100.1"}, "X-Forwarded-For": {"127.0.0.1"}}, false},
		{http.Header{"Forwarded": {"for=_x"}, "X-Forwarded-For": {"127.0.0.1"}}, false},
	}
	trusting := Spec{Network: "tcp", TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/8")}}
	for _, h := range headers {
		for _, tc := range []struct {
			what string
			l    *Listener
			from string
			want bool
		}{
			{"a trusted proxy", &Listener{Spec: trusting, Loopback: true}, "127.0.0.1:4", h.near},
			{"another local peer", &Listener{Spec: trusting, Loopback: true}, "127.0.0.9:4", true},
			{"a listener without proxies", &Listener{Spec: Spec{Network: "tcp"}, Loopback: true}, "127.0.0.1:4", true},
			{"a listener that is not local", &Listener{Spec: trusting}, "127.0.0.1:4", false},
		} {
			o := &Origin{Listener: tc.l, Remote: netip.MustParseAddrPort(tc.from)}
			if got := o.IsLocal(h.lines); got != tc.want {
				t.Errorf("%s, %v: local %v", tc.what, h.lines, got)
			}
		}
		if o := (&Origin{Listener: &Listener{Spec: Spec{Network: "unix"}}}); !o.IsLocal(h.lines) {
			t.Errorf("the Unix socket, %v: not local", h.lines)
		}
	}
	if (*Origin)(nil).IsLocal(nil) {
		t.Error("a connection of which nothing is known is local")
	}
}
