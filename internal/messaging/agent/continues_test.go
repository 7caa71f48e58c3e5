package agent

import (
	"context"
	"errors"
	"testing"

	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

// TestOnlyAListContinuesARecord: a caller that continues a recorded act gets lists without a
// further record, and is refused like any other. Everything else that it does is recorded.
func TestOnlyAListContinuesARecord(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	ctx, o := context.Background(), h.s.Operator()
	a := h.legacy("a").registered("a")
	id := a.call("send", m{"to": "operator", "body": "x"}).want("").str("message_id")
	for name, act := range map[string]struct {
		records int
		do      func(Caller) error
	}{
		"peers":   {0, func(c Caller) error { _, err := o.Peers(ctx, c); return err }},
		"hold ls": {0, func(c Caller) error { _, err := o.Holds(ctx, c); return err }},
		"tail":    {0, func(c Caller) error { _, err := o.Tail(ctx, c, "", -1, 0); return err }},
		"show":    {1, func(c Caller) error { _, err := o.Show(ctx, c, "a"); return err }},
		"send":    {1, func(c Caller) error { _, err := o.Send(ctx, c, OperatorDraft{To: "a", Body: "x"}); return err }},
		"inbox":   {1, func(c Caller) error { _, err := o.Inbox(ctx, c, "a", true, false); return err }},
		"trace":   {1, func(c Caller) error { _, err := o.Trace(ctx, c, id); return err }},
		"pause":   {1, func(c Caller) error { _, err := o.Pause(ctx, c, "a", false); return err }},
		"fsck":    {1, func(c Caller) error { _, err := o.Fsck(ctx, c, false); return err }},
	} {
		me := human()
		me.Continues = true
		before := len(h.lines())
		if err := act.do(me); err != nil || len(h.lines())-before != act.records {
			t.Errorf("%s: %d records, %v, want %d", name, len(h.lines())-before, err, act.records)
		}
		below := me
		below.Processes = append([]string{"boot/a@1"}, me.Processes...)
		if err := act.do(below); !errors.Is(err, ErrAgentShell) {
			t.Errorf("%s below an agent: %v", name, err)
		}
		stranger := me
		stranger.Who = principal.New("token:ci").WithLocal()
		var refusal *gate.Refusal
		if err := act.do(stranger); !errors.As(err, &refusal) {
			t.Errorf("%s of a stranger: %v", name, err)
		}
	}
}
