package signin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
)

// errNoClient says that there is no way to identify Doorward to this authorization server.
var errNoClient = errors.New("the authorization server accepts neither a client metadata document nor a registration: register Doorward with it and set oauth.client_id")

// identify returns Doorward's client, by configuration, metadata document or registration, in this order
// (Client Registration). redirect is the URL of the browser's redirect; before is the client that was used with
// this issuer.
func (t *target) identify(ctx context.Context, m serverMetadata, redirect string, before client) (client, error) {
	switch {
	case t.ClientID != "":
		return t.configured(m, redirect)
	case t.MetadataURL != "" && m.Documents:
		return client{ID: t.MetadataURL, Method: methodNone, Redirect: redirect}, nil
	case before.Made && before.Redirect == redirect && !before.expired(time.Now()):
		return before, nil
	case m.Registration != "":
		return t.register(ctx, m, redirect)
	}
	return client{}, errNoClient
}

func (c client) expired(now time.Time) bool { return c.Expires != 0 && now.Unix() >= c.Expires }

// configured returns the client that was registered by hand.
func (t *target) configured(m serverMetadata, redirect string) (client, error) {
	c := client{ID: t.ClientID, Secret: t.ClientSecret.Reveal(), Method: methodNone, Redirect: redirect}
	switch {
	case c.Secret == "":
	case len(m.AuthMethods) == 0 || slices.Contains(m.AuthMethods, methodBasic):
		c.Method = methodBasic
	case slices.Contains(m.AuthMethods, methodPost):
		c.Method = methodPost
	default:
		return client{}, errors.New("the authorization server accepts no client secret, neither in a header nor in a form")
	}
	return c, nil
}

// proof returns the client of a stored sign-in with its secret. A secret of the configuration goes only to the
// issuer that the configuration names. False: the sign-in belongs to another client.
func (t *target) proof(e entry) (client, bool) {
	c := e.Client
	switch {
	case c.Made:
		return c, !c.expired(time.Now())
	case t.ClientID != "" && c.ID != t.ClientID, t.ClientID == "" && c.ID != t.MetadataURL, t.Issuer != "" && e.Issuer != t.Issuer:
		return client{}, false
	}
	c.Secret = t.ClientSecret.Reveal()
	return c, true
}

// errRedirectRefused says that the authorization server does not register this redirect URI.
var errRedirectRefused = errors.New("the authorization server refuses a redirect to this host: register a client by hand and set oauth.client_id and oauth.callback_port")

// register registers a native application without a secret, or with one if the authorization server insists on it.
func (t *target) register(ctx context.Context, m serverMetadata, redirect string) (c client, err error) {
	for _, method := range m.registrable() {
		c, err = t.registerWith(ctx, m.Registration, redirect, method)
		var refused *grantError
		if !errors.As(err, &refused) || refused.status != http.StatusBadRequest {
			break
		}
	}
	return c, err
}

// registrable lists the authentication methods to register with, in order. The first may be accepted without being
// announced. Without an announcement the second is (RFC 8414, section 2).
func (m serverMetadata) registrable() []string {
	methods := []string{methodNone}
	for _, method := range []string{methodBasic, methodPost} {
		if slices.Contains(m.AuthMethods, method) || len(m.AuthMethods) == 0 && method == methodBasic {
			methods = append(methods, method)
		}
	}
	return methods
}

// registerWith makes one registration (RFC 7591).
func (t *target) registerWith(ctx context.Context, endpoint, redirect, method string) (client, error) {
	u, err := t.endpoint("registration_endpoint", endpoint)
	if err != nil {
		return client{}, err
	}
	body, err := json.Marshal(map[string]any{
		"client_name": "Doorward", "application_type": "native", "redirect_uris": []string{redirect},
		"grant_types": []string{"authorization_code", "refresh_token"}, "response_types": []string{"code"},
		"token_endpoint_auth_method": method,
	}, json.Deterministic(true))
	if err != nil {
		return client{}, fmt.Errorf("registering: %w", err)
	}
	a, err := t.do(ctx, http.MethodPost, u, http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"}}, body)
	switch code := a.code(); {
	case err != nil:
		return client{}, fmt.Errorf("registering: %w", err)
	case code == "invalid_redirect_uri":
		return client{}, errRedirectRefused
	case a.status/100 != 2:
		return client{}, fmt.Errorf("registering: %w: register Doorward by hand and set oauth.client_id", &grantError{endpoint: "registration", code: code, status: a.status})
	}
	return readClient(a, redirect)
}

// readClient reads the answer to a registration (RFC 7591, section 3.2.1).
func readClient(a answer, redirect string) (client, error) {
	var m struct {
		ID      string `json:"client_id"`
		Secret  string `json:"client_secret"`
		Method  string `json:"token_endpoint_auth_method"`
		Expires int64  `json:"client_secret_expires_at"`
	}
	if !a.json || decode(a.body, &m) != nil || m.ID == "" || len(m.ID)+len(m.Secret) > maxToken {
		return client{}, errors.New("registering: the answer names no client")
	}
	c := client{ID: m.ID, Secret: m.Secret, Method: m.Method, Redirect: redirect, Made: true, Expires: m.Expires}
	switch {
	case c.Secret == "":
		c.Method, c.Expires = methodNone, 0
	case c.Method == "":
		c.Method = methodBasic
	case !slices.Contains([]string{methodNone, methodBasic, methodPost}, c.Method):
		return client{}, fmt.Errorf("registering: the authorization server requires a client authentication method that is not supported")
	}
	return c, nil
}
