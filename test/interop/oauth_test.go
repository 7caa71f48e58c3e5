//go:build interop

package interop

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

// TestAClientOfTheSDKSignsIn: a client that knows only the URL finds the issuer by
// challenge and metadata, signs in for exactly this resource, and asks for more scopes
// when a call needs them.
func TestAClientOfTheSDKSignsIn(t *testing.T) {
	t.Parallel()
	issuer, err := doortest.NewIssuer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(issuer.Close)
	trust := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(trust, issuer.CA, 0o600); err != nil {
		t.Fatal(err)
	}
	port := doortest.FreePort(t)
	door := fmt.Sprintf("http://127.0.0.1:%d", port)
	doortest.Start(t, fmt.Sprintf(`
listen: {http: [{addr: "127.0.0.1:%d"}]}
oauth:
  issuer: %s
  audience: %s
  allow_private: true
  scopes:
    look: ["tool:counter/test_simple_text"]
    all: [server:counter]
mcpServers:
  counter: {command: %s}
`, port, issuer.URL, door, fixture.Everything(t)), doortest.Options{Env: []string{"SSL_CERT_FILE=" + trust}})

	var resources []string
	handler, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		PreregisteredClient: &oauthex.ClientCredentials{ClientID: "editor"},
		RedirectURL:         "http://127.0.0.1:1/callback",
		Client:              issuer.Client(),
		ScopeFilter: func(found []string) []string { // begin with fewer scopes than are offered
			if slices.Contains(found, "look") {
				return []string{"look"}
			}
			return found
		},
		AuthorizationCodeFetcher: func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			asked, err := url.Parse(args.URL)
			if err != nil {
				return nil, err
			}
			resources = append(resources, asked.Query().Get("resource"))
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, args.URL, nil)
			if err != nil {
				return nil, err
			}
			resp, err := issuer.Client().Do(req) // the user agrees at once
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
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "interop", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: door + "/mcp/counter", OAuthHandler: handler, DisableStandaloneSSE: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for _, tool := range []string{"test_simple_text", "test_image_content"} {
		if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool}); err != nil {
			t.Errorf("%s: %v", tool, err)
		}
	}
	var asked []string
	for _, scopes := range issuer.Asked() { // the SDK keeps them in a map
		words := strings.Fields(scopes)
		slices.Sort(words)
		asked = append(asked, strings.Join(words, " "))
	}
	if got := strings.Join(asked, "; "); got != "look; all look" {
		t.Errorf("scopes that were asked for: %q", got)
	}
	if !slices.Equal(resources, []string{door + "/mcp/counter", door + "/mcp/counter"}) {
		t.Errorf("tokens were asked for %q", resources)
	}
}
