package signin

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Whichever address a server or its authorization server names badly, and in whichever way, the sign-in ends before a
// registration, a code or a secret is sent, and no other host is asked.
func TestNoBadAddressIsUsedAnywhere(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("another host got %s %s", r.Method, r.URL) }))
	t.Cleanup(other.Close)
	port := other.URL[strings.LastIndexByte(other.URL, ':')+1:]
	places := map[string]func(p *provider, address string){
		"resource_metadata": func(p *provider, a string) {
			p.at("/mcp", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
				w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+strings.ReplaceAll(a, `\`, `\\`)+`"`)
				w.WriteHeader(http.StatusUnauthorized)
			})
		},
		"authorization_servers": func(p *provider, a string) { p.prm["authorization_servers"] = []string{a} },
	}
	for _, member := range []string{"authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint"} {
		places[member] = func(p *provider, a string) { p.meta[member] = a }
	}
	for place, set := range places {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			for _, address := range []string{
				"http://as.example/x", "HTTP://AS.example/x", "http://8.8.8.8/x", "ftp://as.example/x", "javascript:alert(1)", "data:text/html,x", "file:///etc/passwd",
				"//as.example/x", "/x", "x", "https:", "https://", "https:as.example", "https:///x", "https://user:pass@as.example/x", "https://@as.example/x", "https://as.example/x#y",
				"https://as.example/ x", "https://as.example\\@127.0.0.1/x", "https://as.example:0/x", "https://as.example:99999/x", "https://as.example:/x", "https://as.example./x",
				"https://169.254.169.254/x", "https://[::ffff:169.254.169.254]/x", "https://[fd00:ec2::254]/x", "https://metadata.google.internal/x", "https://x.metadata.google.internal/x",
				"https://10.0.0.1/x", "https://[::1]/x", "https://[::]/x", "https://0.0.0.0/x", "https://[fe80::1%25eth0]/x", "https://224.0.0.1/x", "https://100.64.0.1/x",
				"https://0x7f.1/x", "https://2130706433/x", "https://127.1/x", "https://0177.0.0.1/x", "https://127.0.0.1./x",
				"http://127.0.0.1:" + port + "/x", "https://127.0.0.1:" + port + "/x", "http://localhost:" + port + "/x", "https://localhost:" + port + "/x", "https://a.localhost:" + port + "/x",
			} {
				p := newProvider(t, nil)
				set(p, address)
				l, err := Begin(t.Context(), newStore(t), p.settings(), anyPort)
				if err == nil {
					l.Close()
					t.Errorf("%s: a person would be sent to %s", address, l.URL)
				}
				if n := len(p.asked("/register")) + len(p.asked("/token")); n != 0 {
					t.Errorf("%s: %d requests went on", address, n)
				}
				if said := fmt.Sprint(err); strings.Contains(said, "user:pass") {
					t.Errorf("it says %s", said)
				}
			}
		})
	}
}
