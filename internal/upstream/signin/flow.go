package signin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// Listen opens the port on 127.0.0.1 for the redirect of the browser; 0: any free one.
type Listen func(port int) (net.Listener, error)

// Login is one sign-in of a person under way.
type Login struct {
	URL    string   // to be opened in a browser by a person, after reading it
	Scopes []string // scopes that it asks for
	Issuer string   // the authorization server
	CodeTo string   // host of the token endpoint, which gets the code; it may be another than that of URL

	store    *Store
	target   *target
	found    found
	client   client
	again    bool // client was registered for an earlier sign-in
	redirect string
	verifier string
	callback *callback
}

// Begin finds the authorization server of a server and Doorward's client there, and opens the port for the
// answer. The caller shows URL, calls Wait, and then Close.
func Begin(ctx context.Context, store *Store, s Settings, listen Listen) (*Login, error) {
	if s.Grant == GrantMachine {
		return nil, fmt.Errorf("server %s is signed in to automatically (grant: client_credentials): it needs no doorward login", s.Server)
	}
	t, err := newTarget(s)
	if err != nil {
		return nil, err
	}
	c, err := t.ask(ctx)
	if err != nil {
		return nil, err
	}
	f, err := t.discover(ctx, c)
	if err != nil {
		return nil, err
	}
	before, _ := store.find(s.Server, t.resource)
	if before.Issuer != f.issuer {
		before = entry{} // agreements with one issuer do not apply to another
	}
	l := &Login{store: store, target: t, found: f, Scopes: t.scopes(f, before), Issuer: f.issuer, CodeTo: hostOf(f.meta.Token)}
	if err := l.open(ctx, listen, before.Client); err != nil {
		return nil, err
	}
	return l, nil
}

// hostOf returns the host and port of a URL.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Host
}

// scopes returns the scopes to ask for: those of the operator, or else of the server; those that it has asked
// for since the last time; and offline_access, which allows renewal without a person, if the authorization
// server knows it.
func (t *target) scopes(f found, before entry) []string {
	all := f.scopes
	if t.Scopes != nil {
		all = t.Scopes
	}
	all = union(all, before.Wanted)
	const offline = "offline_access"
	if t.Grant == GrantCode && len(all) > 0 && slices.Contains(f.meta.Scopes, offline) {
		all = union(all, []string{offline})
	}
	return all
}

// open listens for the browser and determines the client, whose registration may depend on the port.
func (l *Login) open(ctx context.Context, listen Listen, before client) error {
	port, err := l.port(listen, before)
	if err != nil {
		return fmt.Errorf("listening for the browser's return: %w", err)
	}
	number := port.Addr().(*net.TCPAddr).Port
	for _, host := range []string{"127.0.0.1", "localhost"} {
		l.redirect = "http://" + net.JoinHostPort(host, strconv.Itoa(number)) + callbackPath
		l.client, err = l.target.identify(ctx, l.found.meta, l.redirect, before)
		if !errors.Is(err, errRedirectRefused) {
			break
		}
	}
	if err != nil {
		port.Close()
		return err
	}
	l.again = before.Made && l.client == before
	l.verifier = token()
	state := token()
	l.URL, err = l.address(state)
	if err != nil {
		port.Close()
		return err
	}
	l.callback = serveCallback(port, state, l.found.issuer, l.found.meta.Iss)
	return nil
}

// port opens the configured port, or else the one that this client was registered with, so that it need not be
// registered again, or else any.
func (l *Login) port(listen Listen, before client) (net.Listener, error) {
	if l.target.CallbackPort != 0 {
		return listen(l.target.CallbackPort)
	}
	if u, err := url.Parse(before.Redirect); err == nil && before.Made {
		if n, err := strconv.Atoi(u.Port()); err == nil {
			if port, err := listen(n); err == nil {
				return port, nil
			}
		}
	}
	return listen(0)
}

// address returns the URL at which a person consents. It keeps the parameters in the endpoint's own query,
// except those that the flow sets.
func (l *Login) address(state string) (string, error) {
	u, err := l.target.endpoint("authorization_endpoint", l.found.meta.Authorization)
	if err != nil {
		return "", err
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", errors.New("authorization_endpoint: its query is not valid")
	}
	sum := sha256.Sum256([]byte(l.verifier))
	q.Set("response_type", "code")
	q.Set("client_id", l.client.ID)
	q.Set("redirect_uri", l.redirect)
	q.Set("state", state)
	q.Set("code_challenge", base64.RawURLEncoding.EncodeToString(sum[:]))
	q.Set("code_challenge_method", "S256")
	q.Set("resource", l.found.resource)
	if q.Del("scope"); len(l.Scopes) > 0 {
		q.Set("scope", joinScopes(l.Scopes))
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// token returns 256 random bits.
func token() string {
	b := make([]byte, 32)
	rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

// Result is the outcome of a sign-in.
type Result struct {
	Issuer  string
	Scopes  []string  // granted, as far as the server has said
	Expires time.Time // of the access token; zero: unknown
	Renews  bool      // tokens are renewed without a person
}

// Wait waits for the browser's redirect, exchanges the code and stores the tokens.
func (l *Login) Wait(ctx context.Context) (Result, error) {
	code, err := l.callback.wait(ctx)
	if err != nil {
		return Result{}, l.hint(err)
	}
	got, err := l.target.grant(ctx, l.found.meta.Token, l.client, l.found.resource, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {l.redirect}, "code_verifier": {l.verifier},
	})
	if err != nil {
		return Result{}, l.hint(err)
	}
	e := l.target.entry(l.found, l.client, l.Scopes)
	e.take(got, time.Now())
	if err := l.store.keep(e); err != nil {
		return Result{}, err
	}
	return Result{Issuer: e.Issuer, Scopes: e.Scopes, Expires: e.Expires, Renews: e.Refresh != ""}, nil
}

// hint adds to an error what to do if the authorization server has forgotten the registration, which is used again at
// each sign-in. Many show that on their page and do not send the browser back.
func (l *Login) hint(err error) error {
	var refused *grantError
	if l.again && (errors.Is(err, context.DeadlineExceeded) || errors.As(err, &refused) && refused.stranger()) {
		return fmt.Errorf("%w; if its page does not know this client, run doorward logout %s and sign in again", err, l.target.Server)
	}
	return err
}

// entry returns a sign-in that has no tokens yet.
func (t *target) entry(f found, c client, scopes []string) entry {
	if !c.Made {
		c.Secret = "" // it stays only in the configuration
	}
	return entry{Server: t.Server, Issuer: f.issuer, Resource: f.resource, URL: t.resource, Client: c,
		Token: f.meta.Token, Revocation: f.meta.Revocation, Scopes: scopes, Signed: time.Now()}
}

// Close frees the port.
func (l *Login) Close() { l.callback.close() }
