package policycheck

import (
	"slices"

	"github.com/doorward/doorward/internal/trust/policy"
)

// Unmatched returns the patterns of a deny list that match none of the names.
func Unmatched(patterns, names []string) (out []string) {
	for _, p := range patterns {
		if !slices.ContainsFunc(names, func(name string) bool { return policy.Denies(p, name) }) {
			out = append(out, p)
		}
	}
	return out
}
