package doortest

import (
	"slices"
	"testing"
)

// TestAPortIsGivenOutOnceUntilItsTestEnds: no other test gets the port meanwhile, even if nothing
// listens on it.
func TestAPortIsGivenOutOnceUntilItsTestEnds(t *testing.T) {
	t.Parallel()
	ports := FreePorts(t, 3)
	slices.Sort(ports)
	if len(slices.Compact(ports)) != 3 || !isFree(ports[0]) {
		t.Errorf("ports %v", ports)
	}
	t.Run("another test", func(t *testing.T) {
		if reserve(t, ports[0]) {
			t.Error("a port is given out twice")
		}
	})
}
