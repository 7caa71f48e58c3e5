//go:build !linux

package peer

import (
	"errors"
	"testing"
)

// Without a way to watch connections there is no Arrivals, so idle connections are not given up
// after a moment.
func TestThereAreNoArrivals(t *testing.T) {
	t.Parallel()
	if a, err := NewArrivals(); a != nil || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v, %v", a, err)
	}
}
