package agent

import (
	"testing"
	"time"
)

// A call that panics after an event gives its place and its signals back.
func TestAPanicGivesThePlaceOfAWaitBack(t *testing.T) {
	t.Parallel()
	for _, came := range []event{eventTick, eventSignal, eventTime, eventClosing} {
		given := 0
		back := func() { given++ }
		p := &paused{came: came, begin: time.Now(), leave: back, part: back} // it has no call
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("event %d: no panic", came)
				}
			}()
			p.resume(t.Context())
		}()
		if given != 2 {
			t.Errorf("event %d: %d of 2 given back", came, given)
		}
	}
}
