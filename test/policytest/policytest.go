// Package policytest makes policies for tests. Only tests import it.
package policytest

import (
	"testing"

	"github.com/doorward/doorward/internal/trust/policy"
)

// New returns the policy of the built-in rules and the given servers, without a file of the
// operator, for a daemon of the user uid.
func New(t testing.TB, uid uint32, servers map[string]policy.ServerRules) *policy.Set {
	t.Helper()
	s, problems := policy.Compile(policy.Options{UID: uid, Servers: servers})
	if s == nil {
		t.Fatalf("the built-in rules: %v", problems)
	}
	return s
}
