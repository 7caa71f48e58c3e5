package main

import (
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/upstream/signin"
)

// A person reads who gets the code before the address, on lines of Doorward's own, and a second
// line where the page is at another host.
func TestLoginSaysWhoGetsTheCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		login signin.Login
		lines int
		says  string
	}{
		{signin.Login{URL: "https://as.example/authorize?x=1", Issuer: "https://as.example", CodeTo: "as.example"}, 1, "as.example gets the code"},
		{signin.Login{URL: "https://AS.example/authorize", Issuer: "https://as.example", CodeTo: "as.example"}, 1, "as.example gets the code"},
		{signin.Login{URL: "https://as.example/authorize", Issuer: "https://evil.example", CodeTo: "evil.example"}, 2, "only if evil.example belongs"},
		{signin.Login{URL: "https://as.example/authorize", Issuer: "https://as.example", CodeTo: "as.example:8443"}, 2, "only if as.example:8443 belongs"},
		{signin.Login{URL: "https://as.example/authorize", Issuer: "https://evil.example/\n\x1b[2Kgood", CodeTo: "evil\u202e\n.example"}, 2, "the authorization server is https://evil.example"},
	} {
		text := codeTo(&c.login)
		if n := strings.Count(text, "doorward: "); n != c.lines || strings.Count(text, "\n") != n || !strings.Contains(text, c.says) || strings.ContainsAny(text, "\x1b\u202e") {
			t.Errorf("%+v: %q", c.login, text)
		}
	}
}
