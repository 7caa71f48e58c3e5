package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// user is the browser of a user who agrees at once. It does not follow redirects.
var user = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// signin connects to a URL, signs in where the server says, and calls two tools, of which the
// second needs more scopes. It prints the resource of each token that it asked for.
func signin(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: sdk signin URL")
	}
	handler, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		PreregisteredClient:      &oauthex.ClientCredentials{ClientID: "editor"},
		RedirectURL:              "http://127.0.0.1:1/callback",
		Client:                   user,
		ScopeFilter:              fewer,
		AuthorizationCodeFetcher: agree,
	})
	if err != nil {
		return err
	}
	ctx := context.Background()
	client := mcp.NewClient(&mcp.Implementation{Name: "interop", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: args[0], OAuthHandler: handler, DisableStandaloneSSE: true}, nil)
	if err != nil {
		return err
	}
	defer session.Close()
	for _, tool := range []string{"test_simple_text", "test_image_content"} {
		if _, e := session.CallTool(ctx, &mcp.CallToolParams{Name: tool}); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", tool, e))
		}
	}
	return err
}

// fewer begins with fewer scopes than are offered.
func fewer(found []string) []string {
	if slices.Contains(found, "look") {
		return []string{"look"}
	}
	return found
}

// agree opens the page of the authorization server and returns what it answers.
func agree(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
	asked, err := url.Parse(args.URL)
	if err != nil {
		return nil, err
	}
	fmt.Println(asked.Query().Get("resource"))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, args.URL, nil)
	if err != nil {
		return nil, err
	}
	resp, err := user.Do(req)
	if err != nil {
		return nil, err
	}
	resp.Body.Close()
	back, err := resp.Location()
	if err != nil {
		return nil, err
	}
	q := back.Query()
	return &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"), Iss: q.Get("iss")}, nil
}
