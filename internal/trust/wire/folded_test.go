package wire

import (
	"bytes"
	"testing"
)

// TestASCIIIsFoldedAsByEqualFold: each pair of characters.
func TestASCIIIsFoldedAsByEqualFold(t *testing.T) {
	t.Parallel()
	for a := range byte(0x80) {
		for b := range byte(0x80) {
			one, other := []byte{a}, []byte{b}
			if same := bytes.Equal(appendFolded(nil, one), appendFolded(nil, other)); same != bytes.EqualFold(one, other) {
				t.Errorf("%q and %q are folded to one: %v", a, b, same)
			}
		}
	}
}
