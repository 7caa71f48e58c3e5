package policycheck

import (
	"strings"
	"testing"
)

func TestUnmatchedPatternsAreThoseThatDenyNothing(t *testing.T) {
	t.Parallel()
	names := []string{"read_note", "delete_note", "Purge"}
	patterns := []string{"delete_*", "purge", "delet_note", "drop_*", "*", "read_note ", "\u202e*"}
	if got := strings.Join(Unmatched(patterns, names), ","); got != "delet_note,drop_*,read_note ,\u202e*" {
		t.Errorf("unmatched: %q", got)
	}
}
