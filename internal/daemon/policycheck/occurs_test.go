package policycheck

import (
	"maps"
	"slices"
	"testing"

	"github.com/doorward/doorward/internal/trust/policy"
)

// TestEachKnownFactHasAGrade: the facts that occur with some grade are those that rules
// can read, and each list is sorted.
func TestEachKnownFactHasAGrade(t *testing.T) {
	t.Parallel()
	with := make(map[string]bool)
	for grade, names := range occurs {
		if !slices.IsSorted(names) {
			t.Errorf("%s: %v is not sorted", grade, names)
		}
		for _, name := range names {
			with[name] = true
		}
	}
	got, want := slices.Sorted(maps.Keys(with)), slices.Sorted(maps.Keys(policy.KnownFacts))
	if !slices.Equal(got, want) {
		t.Errorf("facts with a grade are %v, known are %v", got, want)
	}
}
