package signin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/upstream/egress"
)

// resourceMetadata holds the members of RFC 9728 that are used.
type resourceMetadata struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported"`
}

// serverMetadata holds the members of RFC 8414 that are used.
type serverMetadata struct {
	Issuer        string   `json:"issuer"`
	Authorization string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	Registration  string   `json:"registration_endpoint"`
	Revocation    string   `json:"revocation_endpoint"`
	Challenges    []string `json:"code_challenge_methods_supported"`
	AuthMethods   []string `json:"token_endpoint_auth_methods_supported"`
	Scopes        []string `json:"scopes_supported"`
	Documents     bool     `json:"client_id_metadata_document_supported"`
	Iss           bool     `json:"authorization_response_iss_parameter_supported"`
}

// found says where and how to sign in to a server.
type found struct {
	resource string
	issuer   string
	scopes   []string // scopes that the server asks for
	meta     serverMetadata
}

// probe is a request without side effects that a server must refuse if it requires a token.
const probe = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{` +
	`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`

// ask requests the server's challenge. A server without a challenge may still have metadata.
func (t *target) ask(ctx context.Context) (challenge, error) {
	u, err := egress.CheckURL(t.URL)
	if err != nil {
		return challenge{}, err
	}
	post := http.Header{"Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"server/discover"}}
	get := http.Header{"Accept": {"text/event-stream"}}
	for _, r := range []struct {
		method string
		header http.Header
		body   string
	}{{http.MethodPost, post, probe}, {http.MethodGet, get, ""}} {
		a, err := t.do(ctx, r.method, u, r.header, []byte(r.body))
		if err != nil && !errors.Is(err, errRedirect) {
			return challenge{}, fmt.Errorf("asking the server: %w", err)
		}
		if c := parseChallenge(a.header); a.status == http.StatusUnauthorized || a.status == http.StatusForbidden && c.bearer {
			return c, nil
		}
	}
	return challenge{any: true}, nil
}

// errNowhere says that neither the server nor the configuration names an authorization server.
var errNowhere = errors.New("the server does not say where to sign in: it has no protected resource metadata; name its authorization_server under oauth")

// discover finds the authorization server (Authorization Server Discovery).
func (t *target) discover(ctx context.Context, c challenge) (found, error) {
	f := found{resource: t.resource, scopes: c.scopes, issuer: t.Issuer}
	prm, err := t.resourceMetadata(ctx, c)
	switch {
	case err == nil:
		f.resource = prm.Resource
		if len(f.scopes) == 0 {
			f.scopes = union(prm.Scopes)
		}
		if f.issuer == "" {
			f.issuer = prm.Servers[0]
		}
	case !errors.Is(err, errNoDocument):
		return found{}, err
	case f.issuer == "":
		// Servers of 2025-03-26 are their own authorization server.
		f.issuer = strings.TrimSuffix((&url.URL{Scheme: t.url.Scheme, Host: t.url.Host}).String(), "/")
	}
	f.meta, err = t.serverMetadata(ctx, f.issuer)
	if errors.Is(err, errNoDocument) && prm == nil && t.Issuer == "" {
		return found{}, errNowhere
	}
	if err != nil {
		return found{}, fmt.Errorf("metadata of the authorization server: %w", err)
	}
	return f, nil
}

const wellKnownResource = "/.well-known/oauth-protected-resource"

// resourceMetadata fetches the server's metadata from the URL in the challenge, or else from the well-known
// places.
func (t *target) resourceMetadata(ctx context.Context, c challenge) (*resourceMetadata, error) {
	places := []string{wellKnown(t.url, wellKnownResource+strings.TrimSuffix(t.url.EscapedPath(), "/"))}
	if root := wellKnown(t.url, wellKnownResource); root != places[0] {
		places = append(places, root)
	}
	if c.metadata != "" {
		places = []string{c.metadata}
	}
	for _, place := range places {
		u, err := t.endpoint("resource_metadata", place)
		if err != nil {
			return nil, err
		}
		var m resourceMetadata
		err = t.document(ctx, u, &m)
		if errors.Is(err, errNoDocument) && c.metadata == "" {
			continue
		}
		if err == nil {
			err = t.checkResource(&m)
		}
		if err != nil {
			return nil, fmt.Errorf("protected resource metadata: %w", strict(err))
		}
		return &m, nil
	}
	return nil, errNoDocument
}

// strict replaces errNoDocument: a document that was announced and does not exist is an error, and no other
// place is tried.
func strict(err error) error {
	if errors.Is(err, errNoDocument) {
		return fmt.Errorf("it is not at the address that the server names: %v", err)
	}
	return err
}

func wellKnown(u *url.URL, path string) string {
	return u.Scheme + "://" + u.Host + path
}

// checkResource checks that metadata name this server, or a path above it (RFC 9728, section 3.3).
func (t *target) checkResource(m *resourceMetadata) error {
	u, err := egress.CheckURL(m.Resource)
	if err != nil {
		return fmt.Errorf("resource: %w", err)
	}
	above := strings.TrimSuffix(u.EscapedPath(), "/")
	path := t.url.EscapedPath()
	if egress.Origin(u) != t.origin || u.RawQuery != "" || path != above && !strings.HasPrefix(path, above+"/") {
		return errors.New("they belong to another resource")
	}
	if len(m.Servers) == 0 {
		return errors.New("they name no authorization server")
	}
	return nil
}

// serverMetadata fetches the metadata of an issuer and checks everything in them that is used.
func (t *target) serverMetadata(ctx context.Context, issuer string) (serverMetadata, error) {
	u, err := t.endpoint("issuer", issuer)
	switch {
	case err != nil:
		return serverMetadata{}, err
	case u.RawQuery != "" || u.ForceQuery:
		return serverMetadata{}, errors.New("issuer: a query is not allowed")
	}
	missing := errNoDocument
	for _, place := range metadataPlaces(u) {
		at, err := t.endpoint("issuer", place)
		if err != nil {
			return serverMetadata{}, err
		}
		var m serverMetadata
		err = t.document(ctx, at, &m)
		if errors.Is(err, errNoDocument) {
			if missing == errNoDocument {
				missing = err
			}
			continue
		}
		if err == nil {
			err = t.checkServer(&m, issuer)
		}
		return m, err
	}
	return serverMetadata{}, missing
}

// metadataPlaces lists the places where an issuer publishes its metadata, in order (Authorization Server
// Metadata Discovery).
func metadataPlaces(issuer *url.URL) []string {
	const oauth, oidc = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
	path := strings.TrimSuffix(issuer.EscapedPath(), "/")
	places := []string{wellKnown(issuer, oauth+path), wellKnown(issuer, oidc+path)}
	if path != "" {
		places = append(places, wellKnown(issuer, path+oidc))
	}
	return places
}

// checkServer checks that a document names exactly the issuer it was fetched for, that its endpoints may be
// used, and that it supports PKCE.
func (t *target) checkServer(m *serverMetadata, issuer string) error {
	if m.Issuer != issuer {
		return otherIssuer(m.Issuer, issuer)
	}
	for _, e := range []struct {
		what, raw string
		needed    bool
	}{
		{"authorization_endpoint", m.Authorization, t.Grant == GrantCode}, {"token_endpoint", m.Token, true},
		{"registration_endpoint", m.Registration, false}, {"revocation_endpoint", m.Revocation, false},
	} {
		if e.raw == "" && !e.needed {
			continue
		}
		if _, err := t.endpoint(e.what, e.raw); err != nil {
			return err
		}
	}
	if t.Grant == GrantCode && !slices.Contains(m.Challenges, "S256") {
		return errors.New("the authorization server does not support PKCE with S256")
	}
	return nil
}

// otherIssuer returns the error for metadata of another issuer. A name is not quoted, because its sender may know a secret.
func otherIssuer(got, asked string) error {
	if strings.TrimSuffix(got, "/") == strings.TrimSuffix(asked, "/") {
		return errors.New("they belong to another issuer, whose name differs in a slash at the end: write it in oauth.authorization_server as its metadata do")
	}
	return errors.New("they belong to another issuer")
}
