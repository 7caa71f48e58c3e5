//go:build !race

package authn

import "testing"

// A later request on an observed connection of the Unix socket allocates nothing. The race
// detector itself allocates here, so the test is built without it.
func TestALaterRequestOfTheSocketAllocatesNothing(t *testing.T) {
	w := newWorld(t)
	c, _ := observing(t)
	if _, err := w.Authenticate(c, nil); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(200, func() { w.Authenticate(c, nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
