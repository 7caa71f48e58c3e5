//go:build interop

package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

	cmd := exec.Command(doortest.SDK(t, "sdk"), "signin", door+"/mcp/counter")
	cmd.Env = fixture.ClientEnv(t.TempDir(), "SSL_CERT_FILE="+trust)
	cmd.Stderr = os.Stderr
	resources, err := cmd.Output()
	if err != nil {
		t.Errorf("the client: %v", err)
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
	if string(resources) != strings.Repeat(door+"/mcp/counter\n", 2) {
		t.Errorf("tokens were asked for %q", resources)
	}
}
