package authn

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

// Names of the facts of an access token, beside factScope.
const (
	factIssuer     = "issuer"
	factSubject    = "subject"
	factClient     = "client_id"
	factOAuthScope = "oauth_scope" // the scopes in the issuer's words; factScope has Doorward's
	factAudience   = "audience"
)

// OAuthOptions configures an OAuth.
type OAuthOptions struct {
	Issuer     string              // an https URL, exactly as tokens and metadata write it
	Audience   string              // this daemon's own URL, without a path
	Scopes     map[string][]string // the words of `token new --scope` that each scope of the issuer grants
	Algorithms []string            // accepted signature algorithms; never `none` or an HMAC

	// Client fetches the issuer's documents. It must check each address that it dials,
	// follow no redirect and use no proxy.
	Client *http.Client
	// OnProblem is called with text for the operator when the issuer's keys become
	// unavailable or, with over, available again. It must not block, and the text never
	// contains a token.
	OnProblem func(text string, over bool)

	Now func() time.Time // nil: time.Now
}

// OAuth verifies the access tokens of one issuer (RFC 9068, RFC 8707). It is a resource
// server only.
//
// Keys come from the issuer's own metadata, never from the token. A verified token is
// cached by its digest until it expires or its key is withdrawn; a refused token is
// checked again each time, at the rate that the limiter allows. Of a token, only its
// digest and the facts that it proved are kept.
type OAuth struct {
	url        string
	audience   string
	algorithms []string
	scopes     scopes
	issuer     *issuer
	verified   verified
	turns      turns
	now        func() time.Time
	stop       context.CancelFunc
}

// NewOAuth makes a verifier. Nothing is fetched before the first token arrives. Close
// ends a running fetch.
func NewOAuth(o OAuthOptions) (*OAuth, error) {
	for _, a := range o.Algorithms {
		if !slices.Contains(allAlgorithms, a) {
			return nil, fmt.Errorf("oauth.algorithms: %.20q is not one of %s", a, strings.Join(allAlgorithms, ", "))
		}
	}
	if len(o.Algorithms) == 0 {
		return nil, errors.New("oauth.algorithms: none is left")
	}
	if o.Client == nil {
		return nil, errors.New("oauth: no HTTP client for the issuer")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OnProblem == nil {
		o.OnProblem = func(string, bool) {}
	}
	ctx, stop := context.WithCancel(context.Background())
	v := &OAuth{url: o.Issuer, audience: strings.TrimSuffix(o.Audience, "/"), algorithms: slices.Clone(o.Algorithms),
		scopes: newScopes(o.Scopes), turns: newTurns(), now: o.Now, stop: stop}
	v.issuer = &issuer{ctx: ctx, url: o.Issuer, client: o.Client, now: o.Now, problem: o.OnProblem,
		changed: v.verified.withdraw, waits: patience}
	return v, nil
}

// Close ends a running fetch.
func (o *OAuth) Close() { o.stop() }

// looksLikeJWT distinguishes access tokens from stored and static ones by their form,
// three parts separated by dots. The form alone decides how a token is verified, so
// that each token has one verifier.
func looksLikeJWT(token string) bool { return strings.Count(token, ".") == 2 }

// known returns the principal of a token that was verified before and is still valid.
func (o *OAuth) known(digest [sha256.Size]byte, local bool, now time.Time) *principal.Principal {
	t := o.verified.get(digest)
	if t == nil || !t.holds(now) || o.issuer.current(now) == nil {
		return nil
	}
	return t.principal(local)
}

// verify checks a token that is not cached. fetch allows fetching the issuer's keys. The
// error is a Rejection or ErrUnverifiable.
func (o *OAuth) verify(token string, digest [sha256.Size]byte, local bool, now time.Time, fetch bool) (*principal.Principal, error) {
	t, err := parseJWT(token)
	if err != nil {
		return nil, err
	}
	// The token's own claims can only refuse it here. The keys are fetched last, so
	// that a token for another audience causes no request to the issuer.
	c, err := o.check(t, now)
	if err != nil {
		return nil, err
	}
	who := c.principal(o)
	if !who.Valid() {
		return nil, badSubject
	}
	key, err := o.signer(t, fetch)
	if err != nil {
		return nil, err
	}
	a := newAccessToken(who, c.expires, key)
	o.verified.put(digest, a, now)
	if r := o.issuer.ring.Load(); !r.prints[key] {
		o.verified.withdraw(r) // the key was withdrawn meanwhile
	}
	return a.principal(local), nil
}

// signer returns the thumbprint of the issuer's key that signed t. Without fetch only the known keys are tried, if there are any.
func (o *OAuth) signer(t *jwt, fetch bool) (string, error) {
	now := o.now()
	print, named := o.signed(o.issuer.current(now), t, now, !fetch)
	switch {
	case print != "":
		return print, nil
	case named:
		return "", badSignature
	case !fetch && o.issuer.ring.Load() != nil:
		return "", ErrUnverifiable
	}
	ring, since, err := o.issuer.renewed(now)
	if err != nil {
		return "", err
	}
	print, named = o.signed(ring, t, now, !fetch)
	switch {
	case print != "":
		return print, nil
	case named:
		return "", badSignature
	case !since:
		return "", ErrUnverifiable // the keys were fetched before the call
	}
	return "", badKey
}

// signed is keyring.signed, in turn.
func (o *OAuth) signed(r *keyring, t *jwt, now time.Time, beyond bool) (print string, named bool) {
	defer o.turns.take(beyond)()
	return r.signed(t, o.url, now)
}

// principal returns the principal that the claims prove.
func (c *claims) principal(o *OAuth) *principal.Principal {
	fact := func(name, value string) principal.Fact {
		return principal.Fact{Name: name, Value: value, Grade: principal.Verified}
	}
	client := fact(factClient, c.client)
	if c.client == "" {
		client.Grade = principal.Unavailable
	}
	return principal.New(principal.OAuth(o.url, c.subject),
		fact(factIssuer, o.url), fact(factSubject, c.subject), client,
		fact(factOAuthScope, strings.Join(c.scopes, " ")),
		fact(factScope, o.scopes.words(c.scopes, c.servers(o))),
		fact(factAudience, strings.Join(c.audiences, " ")))
}

// live reports whether a verified token that is still valid proves exactly this
// principal: a client that renews its token keeps its streams.
func (o *OAuth) live(p *principal.Principal, now time.Time) bool {
	return o.verified.live(p.Identity(), now) && o.issuer.current(now) != nil
}

// Trouble returns why the last fetch got no keys that can be used, for the operator; empty: it
// got some, or there was none. It fetches nothing.
func (o *OAuth) Trouble() string {
	o.issuer.mu.Lock()
	defer o.issuer.mu.Unlock()
	return o.issuer.said
}

// Scopes returns the configured names, sorted.
func (o *OAuth) Scopes() []string { return slices.Clone(o.scopes.names) }

// Basic returns the scopes that a client is told to ask for first: all except those
// that grant the administration, which a client has to ask for explicitly.
func (o *OAuth) Basic() []string {
	return slices.DeleteFunc(o.Scopes(), func(name string) bool { return slices.Contains(o.scopes.grants[name], wordAdmin) })
}

// Resource returns this daemon's own URL, without a slash at its end.
func (o *OAuth) Resource() string { return o.audience }

// Issuer returns the URL of the accepted issuer.
func (o *OAuth) Issuer() string { return o.url }

// StepUp returns the scope that p lacks: the narrowest one with which allows would be
// true of the same caller. It is empty if p has no access token, if allows is already
// true, and if no scope would help.
func (o *OAuth) StepUp(p *principal.Principal, allows func(*principal.Principal) bool) string {
	kind, _, _ := strings.Cut(p.Name(), ":")
	if kind != principal.KindOAuth || allows(p) {
		return ""
	}
	value := func(name string) string { f, _ := p.Fact(name); return f.Value }
	has := strings.Fields(value(factOAuthScope))
	for _, name := range o.scopes.narrow {
		if slices.Contains(has, name) {
			continue
		}
		c := claims{subject: value(factSubject), client: value(factClient),
			scopes: sortedOnce(append(slices.Clone(has), name)), audiences: strings.Fields(value(factAudience))}
		who := c.principal(o)
		if p.Local() {
			who = who.WithLocal()
		}
		if allows(who) {
			return name
		}
	}
	return ""
}
