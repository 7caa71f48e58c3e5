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
			if same := folded(rune(a)) == folded(rune(b)); same != bytes.EqualFold([]byte{a}, []byte{b}) {
				t.Errorf("%q and %q are folded to one: %v", a, b, same)
			}
		}
	}
}
