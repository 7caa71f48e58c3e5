package approval_test

import (
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

// TestACallThatDoesNotWaitNeedsNoPlace: while a caller has as many calls that wait as it may have, one
// that a grant covers and one whose question was approved run.
func TestACallThatDoesNotWaitNeedsNoPlace(t *testing.T) {
	t.Parallel()
	for _, life := range []string{approval.Once, approval.Session, approval.Hour, approval.Always} {
		t.Run(life, func(t *testing.T) {
			t.Parallel()
			o := open(t, time.Hour)
			o.gate = gate.New(held(t, "held", "other"), o.log, gate.Limits{})
			other := act(`{"other":1}`)
			other.Name = "other"
			if a, err := o.call(t.Context(), other, 0); err != nil || a.Pending != 1 {
				t.Fatalf("%+v, %v", a, err)
			}
			if err := o.approve(1, life); err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() { _, _ = o.call(t.Context(), act(`{"equal":1}`), time.Hour) })
			}
			q := o.waitFor(100)
			if a, err := o.call(t.Context(), other, 0); err != nil || o.ran.Load() != 1 {
				t.Errorf("%+v, %v, %d ran", a, err, o.ran.Load())
			}
			if err := o.queue.Settle(principal.New(operator), q.N, "", approval.Verdict{Why: "no"}); err != nil {
				t.Error(err)
			}
			all.Wait()
		})
	}
}
