package daemon

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// The limits of a principal hold for the daemon's own user, on the socket and on
// loopback, only when the configuration sets them: 3,000 calls at once pass by default.
// They always hold for others.
func TestLimitsOfTheDaemonsOwnUser(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text    string
		refused map[string]bool
	}{
		"by default": {"", map[string]bool{"uid:1000": false, "loopback:uid=1000": false, "uid:1001": true, "loopback:uid=1001": false, "token:ci": true, "spawn:1": true}},
		"when set":   {"limits: {calls_per_second: 200}", map[string]bool{"uid:1000": true, "loopback:uid=1000": true, "token:ci": true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conf, problems := config.Parse("doorward.yaml", "/", []byte(c.text), config.Options{})
			if conf == nil {
				t.Fatal(problems)
			}
			log, err := audit.Open(filepath.Join(t.TempDir(), "audit"), audit.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			rules, bad := policy.Compile(policy.Options{UID: 1000, Servers: map[string]policy.ServerRules{"echo": {Tools: policy.List{Allow: []string{"*"}}}},
				File: "policy.cedar", Text: []byte(`@id("all") permit (principal, action, resource);`)})
			if len(bad) > 0 {
				t.Fatal(bad)
			}
			for who, want := range c.refused {
				g := gate.New(rules, log, limitsOf(conf.Limits, 1000))
				refused := false
				for range 3000 {
					pass, err := g.Enter(gate.Act{Who: principal.New(who), Action: "tools/call", Server: "echo", Name: "t"})
					var refusal *gate.Refusal
					refused = refused || errors.As(err, &refusal) && refusal.Code == gate.CodeRate
					if err == nil {
						pass.Leave("ok", 0)
					}
					if refused {
						break
					}
				}
				if allowed := g.Allows(policy.Request{Who: principal.New(who), Action: "tools/call", Server: "echo", Name: "t"}).Allow; refused != want || allowed == (who == "loopback:uid=1001") { // that one no policy lets in
					t.Errorf("%s was refused for its rate: %v, allowed %v", who, refused, allowed)
				}
				sessions, calls := boundsOf(conf.Limits, 1000)(principal.New(who))
				if bounded := sessions <= 64; bounded != (who != "uid:1000" && who != "loopback:uid=1000") || calls < 256 {
					t.Errorf("%s may have %d sessions and %d calls", who, sessions, calls)
				}
			}
		})
	}
}
