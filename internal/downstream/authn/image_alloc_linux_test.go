//go:build !race

package authn

import "testing"

// The race detector itself allocates here.
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
