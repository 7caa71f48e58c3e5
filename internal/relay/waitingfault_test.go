package relay

import (
	"context"
	"testing"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream"
)

// A call that panics after a wait has ended: it does not count as running for its caller.
func TestAPanicAfterAWaitEndsTheCall(t *testing.T) {
	t.Parallel()
	h, _ := withClerk(t, limited(gate.Limits{Calls: 1}))
	ctx, fault := t.Context(), func(context.Context) (upstream.Reply, error) { panic("a fault") }
	for waits := range 3 {
		pass, err := h.gate.Enter(gate.Act{Who: principal.New("uid:1000"), Action: policy.ActionCall, Server: "clerk", Name: "who"}.Deferred())
		if err != nil {
			t.Fatalf("after a panic in the call before: %v", err)
		}
		l := &later{x: &front.Exchange{}, pass: pass, call: &upstream.Waiting{Go: fault}}
		for range waits {
			next := l.call
			l.call = &upstream.Waiting{Go: func(context.Context) (upstream.Reply, error) { return upstream.Reply{}, next }}
		}
		panicked := false
		for range waits + 1 {
			func() {
				defer func() { panicked = recover() != nil }()
				if l.Go(ctx).Later == nil {
					t.Error("the call has an answer")
				}
			}()
		}
		if !panicked {
			t.Error("the panic was lost")
		}
	}
}
