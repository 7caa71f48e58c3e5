package signin

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Authentication methods of a client at a token endpoint.
const (
	methodNone  = "none"
	methodBasic = "client_secret_basic"
	methodPost  = "client_secret_post"
)

// client is Doorward's client at one authorization server.
type client struct {
	ID       string `json:"id"`
	Secret   string `json:"secret,omitzero"`
	Method   string `json:"method"`
	Redirect string `json:"redirect,omitzero"` // URI that it was registered with
	Made     bool   `json:"made,omitzero"`     // by dynamic registration, with this issuer only
	Expires  int64  `json:"expires,omitzero"`  // of the secret, in Unix seconds; 0: never
}

// tokens is the answer of a token endpoint.
type tokens struct {
	access, refresh string
	expires         time.Time // zero: unknown
	scopes          []string  // nil: the requested ones
}

// grantError is the refusal of an endpoint of an authorization server.
type grantError struct {
	endpoint string // token, registration or revocation
	code     string // "": none
	status   int
}

func (e *grantError) Error() string {
	if e.code == "" {
		return fmt.Sprintf("the %s endpoint refused with HTTP %d", e.endpoint, e.status)
	}
	return fmt.Sprintf("the %s endpoint refused: %s (HTTP %d)", e.endpoint, e.code, e.status)
}

// final reports whether repeating the request is pointless, because the grant or the client is no longer valid, or because
// the authorization server wants to see the person.
func (e *grantError) final() bool { return e.stranger() || slices.Contains(finals, e.code) }

var finals = []string{"invalid_grant", "invalid_scope", "unsupported_grant_type", "bad_refresh_token", "interaction_required",
	"login_required", "account_selection_required", "consent_required", "insufficient_user_authentication"}

// stranger reports whether the authorization server does not know or does not accept the client.
func (e *grantError) stranger() bool {
	return slices.Contains([]string{"invalid_client", "unauthorized_client", "incorrect_client_credentials"}, e.code)
}

// unclear reports whether the refusal may be about the grant, though it does not say so.
func (e *grantError) unclear() bool {
	switch {
	case e.status >= 500, e.status == http.StatusRequestTimeout, e.status == http.StatusTooManyRequests:
		return false
	}
	return e.code != "temporarily_unavailable" && e.code != "server_error"
}

// grant requests tokens from a token endpoint. Every request names the resource (RFC 8707).
func (t *target) grant(ctx context.Context, endpoint string, c client, resource string, values url.Values) (tokens, error) {
	u, err := t.endpoint("token_endpoint", endpoint)
	if err != nil {
		return tokens{}, err
	}
	values.Set("resource", resource)
	a, err := t.form(ctx, u, values, c.prove(values))
	switch {
	case err != nil:
		return tokens{}, fmt.Errorf("asking the token endpoint: %w", err)
	case a.status != http.StatusOK || a.refuses():
		return tokens{}, &grantError{endpoint: "token", code: a.code(), status: a.status}
	case !a.json:
		return tokens{}, fmt.Errorf("asking the token endpoint: the answer is not application/json")
	}
	got, err := readTokens(a.body, time.Now())
	if err != nil {
		return tokens{}, fmt.Errorf("asking the token endpoint: %w", err)
	}
	return got, nil
}

// prove adds the client's authentication to values, or returns it as an Authorization header, in which both
// parts are form-encoded (RFC 6749, section 2.3.1).
func (c client) prove(values url.Values) (authorization string) {
	if c.Method == methodBasic {
		pair := url.QueryEscape(c.ID) + ":" + url.QueryEscape(c.Secret)
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(pair))
	}
	values.Set("client_id", c.ID)
	if c.Method == methodPost {
		values.Set("client_secret", c.Secret)
	}
	return ""
}

const (
	maxToken = 32 << 10 // bytes
	maxLife  = 10 * 365 * 24 * time.Hour
)

// readTokens reads the answer of a token endpoint (RFC 6749, section 5.1).
func readTokens(b []byte, now time.Time) (tokens, error) {
	var m struct {
		Access  string         `json:"access_token"`
		Type    string         `json:"token_type"`
		Refresh string         `json:"refresh_token"`
		Expires jsontext.Value `json:"expires_in"`
		Scope   jsontext.Value `json:"scope"`
	}
	if err := decode(b, &m); err != nil {
		return tokens{}, err
	}
	switch {
	case !strings.EqualFold(m.Type, "bearer"):
		return tokens{}, fmt.Errorf("the token is not of type Bearer")
	case !isToken68(m.Access):
		return tokens{}, fmt.Errorf("the token cannot be sent in a header")
	case m.Refresh != "" && !isSecret(m.Refresh):
		return tokens{}, fmt.Errorf("the refresh token is too long or has control characters")
	}
	return tokens{access: m.Access, refresh: m.Refresh, expires: readExpiry(m.Expires, now), scopes: readScopes(m.Scope)}, nil
}

// readScopes reads scopes as text, or as a list, which some servers send; nil: there are none. GitHub separates them with
// commas and no spaces. An answer is not refused for them, because the refresh token before it has been used.
func readScopes(v jsontext.Value) []string {
	var text string
	if decode(v, &text) == nil {
		if !strings.Contains(text, " ") {
			text = strings.ReplaceAll(text, ",", " ")
		}
		return parseScopes(text)
	}
	var list []string
	_ = decode(v, &list) // anything else counts as absent
	return union(list)
}

// readExpiry reads seconds as a number, or as a string, which some servers send.
func readExpiry(v jsontext.Value, now time.Time) time.Time {
	seconds, err := time.ParseDuration(strings.Trim(string(v), `"`) + "s")
	if err != nil || seconds <= 0 {
		return time.Time{}
	}
	return now.Add(min(seconds, maxLife))
}

// isToken68 reports whether s is visible ASCII that is unambiguous in a header.
func isToken68(s string) bool {
	return s != "" && len(s) <= maxToken && !strings.ContainsFunc(s, func(r rune) bool {
		return r < 0x21 || r > 0x7e || r == '"' || r == ',' || r == '\\'
	})
}

// isSecret reports whether s can be a refresh token, which is sent in a form (RFC 6749, appendix A.17).
func isSecret(s string) bool {
	return s != "" && len(s) <= maxToken && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7e })
}

// revoke tells the authorization server that a token is no longer needed (RFC 7009).
func (t *target) revoke(ctx context.Context, endpoint string, c client, token string) error {
	u, err := t.endpoint("revocation_endpoint", endpoint)
	if err != nil {
		return err
	}
	values := url.Values{"token": {token}}
	a, err := t.form(ctx, u, values, c.prove(values))
	if err == nil && a.status/100 != 2 {
		err = &grantError{endpoint: "revocation", code: a.code(), status: a.status}
	}
	return err
}
