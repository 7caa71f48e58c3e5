package daemon

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/downstream/authn"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream/egress"
)

// issuerTime bounds each step of a connection to the issuer; authn bounds the whole fetch.
const issuerTime = 5 * time.Second

// issuerClient returns the client that fetches the issuer's documents: only over https, only
// from addresses that egress allows, and without following redirects.
func issuerClient(c config.OAuth, proxy string) (*http.Client, error) {
	u, err := egress.CheckURL(c.Issuer)
	if err != nil {
		return nil, err
	}
	t := egress.NewTransport(egress.Options{AllowPrivate: c.AllowPrivate, Proxy: proxy, Origin: egress.Origin(u),
		Dial: issuerTime, TLS: issuerTime, Header: issuerTime, MaxIdle: 2})
	return &http.Client{
		Transport:     httpsOnly{egress.Worded{Transport: t}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// httpsOnly checks each URL like that of an upstream, because the issuer's metadata supplies
// jwks_uri.
type httpsOnly struct{ egress.Worded }

func (t httpsOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	u, err := egress.CheckURL(r.URL.String())
	if err != nil {
		return nil, err
	}
	if u.Scheme != "https" || u.Host != strings.ToLower(r.URL.Host) {
		return nil, errors.New("not a plain https address")
	}
	return t.Worded.RoundTrip(r)
}

// issuer is the authorization server whose access tokens are accepted.
type issuer struct {
	oauth *authn.OAuth // nil: none is configured
	gate  *gate.Gate
}

// resource returns the data about the issuer for clients.
func (i *issuer) resource() *front.Resource {
	if i.oauth == nil {
		return nil
	}
	return &front.Resource{URL: i.oauth.Resource(), Issuer: i.oauth.Issuer(), Scopes: i.oauth.Scopes(), Basic: i.oauth.Basic(),
		Missing: func(who *principal.Principal) string {
			if i.stepUp(policy.Request{Who: who, Action: "initialize"}) == "" {
				return ""
			}
			return strings.Join(i.oauth.Basic(), " ")
		}}
}

// stepUp returns the scope with which policy would allow q.
func (i *issuer) stepUp(q policy.Request) string {
	if i.oauth == nil {
		return ""
	}
	return i.oauth.StepUp(q.Who, func(p *principal.Principal) bool {
		q.Who = p
		return i.gate.Allows(q).Allow
	})
}

// tokenInQuery reports a token in the query, where logs and proxies see it (RFC 9700, 4.3.2).
func tokenInQuery(r *http.Request) bool {
	_, query, _ := strings.Cut(r.RequestURI, "?")
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		name, _, _ := strings.Cut(pair, "=")
		if name, err := url.QueryUnescape(name); err == nil && strings.EqualFold(name, "access_token") {
			return true
		}
	}
	return false
}
