// Package signin signs Doorward in to MCP servers that require OAuth. It discovers the authorization server (RFC 9728,
// RFC 8414), lets a person consent in a browser (authorization code with PKCE) or presents a machine's secret (client
// credentials), keeps the tokens sealed on disk, and adds the current token to each request.
//
// One daemon holds the tokens of a machine, so that there is one sign-in and one refresh at a time for each server.
//
// Invariants: a token is sent in a header, and only to the server it was issued for. A URL that a server names
// is checked and dialled through egress; no redirect from it is followed, and Doorward never opens it in a
// browser. A refresh that was begun is finished and stored, even if its caller stopped waiting. A file on disk
// is always complete: the old one or the new one.
//
// Limits: if a daemon is killed after the authorization server exchanged a refresh token and before the new one
// is on disk, the sign-in is lost where the server accepts each refresh token only once; a person signs in
// again. The key beside the sealed files protects their content only against a reader of these files, not of
// the whole state directory; Options.Key moves it elsewhere. Sender-constrained tokens (DPoP, mutual TLS) and
// private_key_jwt are not supported.
package signin

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/upstream/egress"
)

// Values of Settings.Grant.
const (
	GrantCode    = "authorization_code" // a person consents in a browser
	GrantMachine = "client_credentials" // the client's own secret is enough
)

// Settings is the configuration of the sign-in to one server.
type Settings struct {
	Server       string       // its name in the configuration
	URL          string       // its address as configured
	AllowPrivate bool         // the server may be at loopback and private addresses
	Grant        string       // GrantCode or GrantMachine
	ClientID     string       // registered by hand; "": by a metadata document or dynamic registration
	ClientSecret secret.Value // empty for a public client
	MetadataURL  string       // URL of this client's metadata document; "": none
	Issuer       string       // the authorization server; "": the one in the server's metadata
	Scopes       []string     // to ask for; nil: those that the server asks for
	CallbackPort int          // of the redirect; 0: any
	Proxy        string       // egress.Options.Proxy
}

// ErrSignIn says that a person has to sign in, or to consent to more scopes.
var ErrSignIn = errors.New("sign-in is needed")

// ErrRefused says that an authorization server gives no token to a machine, and will give none until that is changed there
// or in the configuration.
var ErrRefused = errors.New("the client gets no access")

// target is one server with its parsed address.
type target struct {
	Settings
	url      *url.URL
	origin   string
	resource string // its canonical URI: no query, no fragment
	issuer   string // origin of Settings.Issuer, "" without one
}

func newTarget(s Settings) (*target, error) {
	u, err := egress.CheckURL(s.URL)
	if err != nil {
		return nil, fmt.Errorf("server %s: %w", s.Server, err)
	}
	plain := *u
	plain.RawQuery, plain.ForceQuery = "", false
	if !s.ClientSecret.Empty() && s.Issuer == "" {
		return nil, fmt.Errorf("server %s: oauth.client_secret needs oauth.authorization_server: the secret is sent only to the authorization server that it belongs to, not to one that the server names", s.Server)
	}
	t := &target{Settings: s, url: &plain, origin: egress.Origin(u), resource: plain.String()}
	if s.Issuer != "" {
		i, err := egress.CheckURL(s.Issuer)
		if err != nil {
			return nil, fmt.Errorf("server %s: authorization_server: %w", s.Server, err)
		}
		t.issuer = egress.Origin(i)
	}
	if err := t.checkScheme(u); err != nil {
		return nil, fmt.Errorf("server %s: %w", s.Server, err)
	}
	return t, nil
}

// private reports whether u may be at a loopback or private address. That holds for the server's own URL and
// the authorization server that the operator named, if AllowPrivate is set. It does not hold for a URL that the
// server names.
func (t *target) private(u *url.URL) bool {
	o := egress.Origin(u)
	return t.AllowPrivate && (o == t.origin || t.issuer != "" && o == t.issuer)
}

// errPlain is the error for http where codes, tokens and secrets could be read on the network.
var errPlain = errors.New("the scheme must be https; http is for this host and literal private addresses, with allow_private")

// checkScheme allows https, and http only to addresses that the operator has allowed and that are near.
func (t *target) checkScheme(u *url.URL) error {
	if u.Scheme == "https" || t.private(u) && isNear(u) {
		return nil
	}
	return errPlain
}

// isNear reports whether the address itself shows that it is not public.
func isNear(u *url.URL) bool {
	if isLocalhost(u.Hostname()) {
		return true
	}
	a, err := netip.ParseAddr(u.Hostname())
	return err == nil && egress.Classify(a) != egress.Global
}

func isLocalhost(host string) bool { return strings.EqualFold(host, "localhost") }

// endpoint checks a URL from a server: its form, its scheme, and its address.
func (t *target) endpoint(what, raw string) (*url.URL, error) {
	u, err := egress.CheckURL(raw)
	if err == nil {
		err = t.checkScheme(u)
	}
	if err == nil {
		err = egress.CheckLiteral(u, t.private(u))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return u, nil
}
