// Package signin signs Doorward in to MCP servers that require OAuth. It discovers the authorization server (RFC 9728,
// RFC 8414), lets a person consent in a browser (authorization code with PKCE) or presents a machine's secret (client
// credentials), keeps the tokens sealed on disk, and adds the current token to each request.
//
// One daemon holds the tokens of a machine, so that there is one sign-in and one refresh at a time for each server.
//
// Invariants: a token is sent in a header, and only to the server it was issued for. A URL that a server names is
// checked, dialled through egress, never followed elsewhere and never opened in a browser by Doorward. A refresh that
// was begun is finished and stored, also when its caller stopped waiting. A file on disk is whole: the old one or the
// new one.
//
// Limits: a daemon that is killed after the authorization server exchanged a refresh token and before the new one is
// on disk has lost the sign-in, where the server accepts each refresh token once; a person signs in again. The key
// beside the sealed files protects their content against a reader of these files only, not of the whole state
// directory; Options.Key moves it elsewhere. Sender-constrained tokens (DPoP, mutual TLS) and private_key_jwt are not
// supported.
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

// The grants of Settings.Grant.
const (
	GrantCode    = "authorization_code" // a person agrees in a browser
	GrantMachine = "client_credentials" // the client's own secret is enough
)

// Settings are what is known of one server before anybody asked it.
type Settings struct {
	Server       string       // its name in the configuration
	URL          string       // its address as configured
	AllowPrivate bool         // of the server: loopback and private addresses are allowed
	Grant        string       // GrantCode or GrantMachine
	ClientID     string       // registered by hand; "": a metadata document or dynamic registration
	ClientSecret secret.Value // empty for a public client
	MetadataURL  string       // where this client's metadata document is; "" for none
	Issuer       string       // the authorization server; "": what the server's metadata name
	Scopes       []string     // to ask for; nil: what the server asks for
	CallbackPort int          // of the redirect; 0: any
	Proxy        string       // egress.Options.Proxy
}

// ErrSignIn says that a person has to sign in, or to agree to more.
var ErrSignIn = errors.New("sign-in is needed")

// target is one server with its address taken apart.
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
		return nil, fmt.Errorf("server %s: oauth.client_secret needs oauth.authorization_server: a secret goes to whom it belongs to, not to whom the server names", s.Server)
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

// private reports whether u may be at a loopback or private address: the server's own URL, and the authorization
// server that the operator named, where the server may be private at all. A URL that the server names may not.
func (t *target) private(u *url.URL) bool {
	o := egress.Origin(u)
	return t.AllowPrivate && (o == t.origin || t.issuer != "" && o == t.issuer)
}

// errPlain: codes, tokens and secrets do not travel in the clear.
var errPlain = errors.New("the scheme must be https; http is for this host and literal private addresses, with allow_private")

// checkScheme lets https pass, and http where no network can listen that the operator has not vouched for.
func (t *target) checkScheme(u *url.URL) error {
	if u.Scheme == "https" || t.private(u) && isNear(u) {
		return nil
	}
	return errPlain
}

// isNear: the address itself says that it is not public.
func isNear(u *url.URL) bool {
	if isLocalhost(u.Hostname()) {
		return true
	}
	a, err := netip.ParseAddr(u.Hostname())
	return err == nil && egress.Classify(a) != egress.Global
}

func isLocalhost(host string) bool { return strings.EqualFold(host, "localhost") }

// endpoint checks a URL that somebody else chose: its form, its scheme, and that it names no address it must not.
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
