package upstream

import (
	"testing"
	"testing/synctest"
)

// An outlet that is drained passes on every event that it has taken, and takes no further one.
func TestADrainedOutletHasPassedOnWhatItTook(t *testing.T) {
	t.Parallel()
	for name, queued := range map[string]int{"nothing": 0, "one event": 1, "several events": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				passed, proceed := 0, make(chan struct{})
				o := outlet{on: func(Event) { <-proceed; passed++ }, max: 1 << 10}
				for range queued {
					if !o.push(Event{Method: "m"}) {
						t.Fatal("an event was refused")
					}
				}
				drained := false
				go func() { o.drain(); drained = true }()
				synctest.Wait()
				if drained != (queued == 0) {
					t.Errorf("with %d events in the queue drain has returned: %v", queued, drained)
				}
				if o.push(Event{Method: "late"}) {
					t.Error("a late event was taken")
				}
				close(proceed)
				synctest.Wait()
				if !drained || passed != queued {
					t.Errorf("drained: %v, %d events passed on, want %d", drained, passed, queued)
				}
			})
		})
	}
}
