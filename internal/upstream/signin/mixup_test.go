package signin

import (
	"net/url"
	"testing"
)

// A sign-in says which authorization server it is at and who gets the code, also where the page
// that a person sees is at another host.
func TestSignInSaysWhoGetsTheCode(t *testing.T) {
	t.Parallel()
	for name, page := range map[string]string{"one host": "", "the page of another provider": "https://honest.example/authorize"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, func(p *provider) {
				if page != "" {
					p.meta["authorization_endpoint"] = page
				}
			})
			l, err := Begin(t.Context(), newStore(t), p.settings(), anyPort)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			u, _ := url.Parse(p.URL)
			if l.Issuer != p.URL || l.CodeTo != u.Host {
				t.Errorf("the code goes to %s for %s", l.CodeTo, l.Issuer)
			}
		})
	}
}
