package policy

import (
	"testing"

	"github.com/doorward/doorward/internal/trust/principal"
)

// TestAPrincipalIsInItself: a rule with `principal in` a principal applies to that principal
// only.
func TestAPrincipalIsInItself(t *testing.T) {
	t.Parallel()
	s := with(t, `
@id("both") permit (principal, action == Action::"tools/call", resource);
@id("self") forbid (principal in Principal::"token:ci", action == Action::"tools/call", resource);`)
	for name, want := range map[string]bool{"token:ci": false, "token:other": true, "spawn:ci": true} {
		who := principal.New(name, principal.Fact{Name: "scope", Value: "server:notes", Grade: principal.Verified})
		if d := s.Decide(callOf(who, "read", "")); d.Allow != want || !want && d.Rule != "self" {
			t.Errorf("%s: %+v", name, d)
		}
	}
}
