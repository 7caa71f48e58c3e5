package policycheck

import (
	"testing"

	"github.com/doorward/doorward/internal/trust/principal"
)

// TestARuleReadsThreeGrades: a test of a policy names the grades as records write them,
// and none that decides nothing.
func TestARuleReadsThreeGrades(t *testing.T) {
	t.Parallel()
	for _, g := range []principal.Grade{principal.Observed, principal.Verified, principal.Attested} {
		if got, ok := gradeOf(g.String()); !ok || got != g {
			t.Errorf("%s is read as %s, %v", g, got, ok)
		}
	}
	for _, bad := range []string{"", "Attested", "ATTESTED", "attested ", "5", "claimed", "unavailable"} {
		if g, ok := gradeOf(bad); ok {
			t.Errorf("%q was taken as grade %v", bad, g)
		}
	}
}
