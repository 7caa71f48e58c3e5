//go:build interop

package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

// signIns are the suite's scenarios for OAuth clients that Doorward holds.
var signIns = strings.Fields(`metadata-default metadata-var1 metadata-var2 metadata-var3 basic-cimd scope-from-www-authenticate
	scope-from-scopes-supported scope-omitted-when-undefined scope-step-up scope-retry-limit token-endpoint-auth-basic
	token-endpoint-auth-post token-endpoint-auth-none pre-registration 2025-03-26-oauth-metadata-backcompat resource-mismatch
	offline-access-scope offline-access-not-supported authorization-server-migration iss-supported iss-not-advertised
	iss-supported-missing iss-wrong-issuer iss-unexpected iss-normalized metadata-issuer-mismatch client-credentials-basic`)

// Left out: 2025-03-26-oauth-endpoint-fallback, where an authorization server
// without metadata cannot show that it supports PKCE, and the extensions that
// Doorward does not have (client-credentials-jwt, dpop, dpop-nonce,
// enterprise-managed-authorization, wif-jwt-bearer).

// Doorward as an OAuth client passes every check of every scenario against the
// suite's own servers. The program signer acts as the operator and as the person at
// the browser.
func TestSignInScenarios(t *testing.T) {
	signer := filepath.Join(t.TempDir(), "signer")
	if out, err := exec.Command("go", "build", "-o", signer, "./signer").CombinedOutput(); err != nil {
		t.Fatalf("building signer: %v\n%s", err, out)
	}
	var total outcome
	for _, name := range signIns {
		t.Run(name, func(t *testing.T) {
			o := clientScenario(t, signer, "auth/"+name)
			if o.failed != 0 || o.passed == 0 {
				t.Errorf("%d passed, %d failed:\n%s", o.passed, o.failed, strings.Join(o.notes, "\n"))
			}
			total.passed, total.failed, total.warnings = total.passed+o.passed, total.failed+o.failed, total.warnings+o.warnings
		})
	}
	t.Logf("%d scenarios: %d checks passed, %d failed, %d warnings", len(signIns), total.passed, total.failed, total.warnings)
}

// clientScenario runs one scenario of the newer suite with command as the
// client. Its exit status is ignored, because in some scenarios it must fail.
func clientScenario(t *testing.T, command, scenario string) outcome {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(fixture.Node(t), fixture.Module(t, c2Modern.module...), "client", "--command", command, "--scenario", scenario, "-o", dir)
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	if os.Getenv("DOORWARD_BIN") == "" {
		cmd.Env = append(cmd.Env, "DOORWARD_BIN="+filepath.Join(doortest.ModuleRoot(t), "bin", "doorward"))
	}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() < 0 {
		t.Fatalf("running the suite: %v\n%s", err, out)
	}
	reports, err := filepath.Glob(filepath.Join(dir, "auth", "*", "checks.json"))
	if err != nil || len(reports) != 1 {
		t.Fatalf("the suite left %d reports:\n%s", len(reports), out)
	}
	var o outcome
	o.add(t, reports[0])
	return o
}
