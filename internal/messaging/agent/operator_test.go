package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

// human is the daemon's user at a shell that no agent started.
func human() Caller {
	who, _ := process("cli")
	return Caller{Who: who, Processes: []string{"boot/cli@1", "boot/shell@1", "boot/1@0"}, Complete: true}
}

func refusalCode(err error) string {
	var e *mail.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func TestTheOperatorsCommandsWorkTogether(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	ctx, o, me := context.Background(), h.s.Operator(), human()
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
	peers, err := o.Peers(ctx, me)
	if err != nil || len(peers) != 2 || peers[0].Name != "a" || peers[0].Principal != "uid:1000" || peers[0].Node != "box" || peers[0].Presence != "awake" {
		t.Fatalf("%+v %v", peers, err)
	}
	sent, err := o.Send(ctx, me, OperatorDraft{To: "a", Subject: "hi", Body: "stop\r\nnow"})
	if err != nil || sent.State != "queued" || sent.Cleaned != 1 {
		t.Fatalf("%+v %v", sent, err)
	}
	in := a.call("inbox", m{}).want("")
	if in.str("messages.0.authority") != "operator" || in.str("messages.0.from.lineage") != "operator" || in.str("messages.0.trust") != "data" ||
		!strings.Contains(a.shown().text, "From the human operator of this machine, sent with the doorward command.") || in.str("messages.0.body") != "stop\nnow" {
		t.Errorf("%s", in.raw)
	}
	tr, err := o.Trace(ctx, me, sent.MessageID)
	if err != nil || len(tr.Messages) != 1 || tr.Messages[0].Signature != "valid" || tr.Messages[0].State != "leased" || len(tr.Changes) != 2 || len(tr.Audit) != 3 {
		t.Errorf("%+v %v", tr, err)
	}
	if tr.Messages[0].Body != "" || tr.Messages[0].Subject != "" {
		t.Error("a trace shows texts")
	}
	a.call("send", m{"to": "operator", "body": "canary"}).want("")
	own, err := o.Inbox(ctx, me, "", false, true)
	if err != nil || len(own.Messages) != 1 || own.Messages[0].Body != "canary" || own.Messages[0].From.Name != "a" || own.Messages[0].Signature != "valid" {
		t.Fatalf("%+v %v", own, err)
	}
	b.call("send", m{"to": "a", "body": "canary"}).want("")
	for _, bodies := range []bool{false, true} {
		box, err := o.Inbox(ctx, me, "a", bodies, false)
		if err != nil || len(box.Messages) != 2 || (box.Messages[1].Body == "canary") != bodies {
			t.Errorf("bodies %t: %+v %v", bodies, box, err)
		}
	}
	if _, err := o.Pause(ctx, me, "a", true); err != nil {
		t.Fatal(err)
	}
	held := b.call("send", m{"to": "a", "body": "while paused"}).want("")
	if held.str("deliveries.0.state") != "held" || !strings.Contains(held.text, "held") || held.str("deliveries.0.presence") != "awake" {
		t.Errorf("%s", held.raw)
	}
	holds, err := o.Holds(ctx, me)
	if err != nil || len(holds) != 1 || holds[0].MessageID != held.str("message_id") || holds[0].Body != "" {
		t.Errorf("%+v %v", holds, err)
	}
	if done, err := o.Settle(ctx, me, HoldApprove, held.str("message_id")); err != nil || len(done) != 1 || done[0].State != "queued" {
		t.Errorf("%+v %v", done, err)
	}
	if p, err := o.Pause(ctx, me, "a", false); err != nil || p.Presence != "awake" || p.Paused {
		t.Errorf("%+v %v", p, err)
	}
	moved, err := o.Transfer(ctx, me, "b", "token:ci")
	if err != nil || moved.Principal != "token:ci" || moved.Epoch != 2 {
		t.Errorf("%+v %v", moved, err)
	}
	b.call("inbox", m{}).want("FENCED")
	if p, err := o.Show(ctx, me, "b"); err != nil || p.Principal != "token:ci" {
		t.Errorf("%+v %v", p, err)
	}
	if _, err := o.Retire(ctx, me, "b"); err != nil {
		t.Error(err)
	}
	if _, err := o.Show(ctx, me, "b"); refusalCode(err) != mail.UnknownRecipient {
		t.Error(err)
	}
	check, err := o.Fsck(ctx, me, false)
	if err != nil || !check.OK || len(check.Unrecorded)+len(check.Unstored) != 0 {
		t.Errorf("%+v %v", check, err)
	}
	if strings.Contains(allLines(t, h), "canary") {
		t.Error("a text is in the record")
	}
}

func TestEveryCommandOfTheOperatorLeavesOneRecord(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	ctx, o, me := context.Background(), h.s.Operator(), human()
	a := h.legacy("a").registered("a")
	id := a.call("send", m{"to": "operator", "body": "x"}).want("").str("message_id")
	commands := map[string]func(Caller) error{
		"peers":    func(c Caller) error { _, err := o.Peers(ctx, c); return err },
		"show":     func(c Caller) error { _, err := o.Show(ctx, c, "a"); return err },
		"retire":   func(c Caller) error { _, err := o.Retire(ctx, c, "ghost"); return err },
		"send":     func(c Caller) error { _, err := o.Send(ctx, c, OperatorDraft{To: "a", Body: "x"}); return err },
		"inbox":    func(c Caller) error { _, err := o.Inbox(ctx, c, "", false, false); return err },
		"inbox a":  func(c Caller) error { _, err := o.Inbox(ctx, c, "a", true, false); return err },
		"tail":     func(c Caller) error { _, err := o.Tail(ctx, c, "", -1, 0); return err },
		"trace":    func(c Caller) error { _, err := o.Trace(ctx, c, id); return err },
		"hold ls":  func(c Caller) error { _, err := o.Holds(ctx, c); return err },
		"hold":     func(c Caller) error { _, err := o.Settle(ctx, c, HoldApprove, id); return err },
		"hold odd": func(c Caller) error { _, err := o.Settle(ctx, c, "burn", id); return err },
		"pause":    func(c Caller) error { _, err := o.Pause(ctx, c, "a", false); return err },
		"transfer": func(c Caller) error { _, err := o.Transfer(ctx, c, "a", "nobody"); return err },
		"fsck":     func(c Caller) error { _, err := o.Fsck(ctx, c, false); return err },
		"repair":   func(c Caller) error { _, err := o.Fsck(ctx, c, true); return err },
	}
	stranger := Caller{Who: principal.New("token:ci").WithLocal(), Processes: []string{"boot/1@0"}, Complete: true}
	below := human()
	below.Processes = slices.Insert(below.Processes, 1, "boot/a@1")
	for name, f := range commands {
		for who, c := range map[string]Caller{"human": me, "no administrator": stranger, "below an agent": below,
			"of unknown descent": {Who: me.Who, Processes: me.Processes}, "of no process": {Who: me.Who, Complete: true}} {
			before := len(h.lines())
			err := f(c)
			got := h.lines()[before:]
			if len(got) != 1 || got[0].Action != "admin" || !strings.Contains(got[0].Resource, "agent/") || got[0].Source != source {
				t.Errorf("%s by %s left %+v", name, who, got)
				continue
			}
			var refused *gate.Refusal
			switch {
			case who == "no administrator":
				if !errors.As(err, &refused) || got[0].Decision != "deny" {
					t.Errorf("%s by %s: %v %+v", name, who, err, got)
				}
			case who != "human":
				if !errors.Is(err, ErrAgentShell) || got[0].Rule != "agent.AGENT_SHELL" || got[0].Decision != "deny" {
					t.Errorf("%s by %s: %v %+v", name, who, err, got)
				}
			case (err == nil) != (got[0].Decision == "allow"):
				t.Errorf("%s by %s: %v %+v", name, who, err, got)
			}
		}
	}
}

// The parent of a bridging shim counts as an agent: commands from below it are refused. The
// parent of an agent without a bridge, such as the shell of the human, does not.
func TestTheParentOfAShimIsAnAgent(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	parent := principal.Fact{Name: factParent, Value: "boot/client@1", Grade: principal.Observed}
	shim, _ := process("shim", parent)
	direct, _ := process("direct", principal.Fact{Name: factParent, Value: "boot/bash@1", Grade: principal.Observed})
	c := h.open(shim, "s1", false)
	c.namespace = "p"
	c.call("register", m{"name": "x"}).want("")
	h.open(direct, "s2", false).registered("y")
	o := h.s.Operator()
	for process, want := range map[string]error{"boot/client@1": ErrAgentShell, "boot/shim@1": ErrAgentShell, "boot/direct@1": ErrAgentShell, "boot/bash@1": nil, "boot/other@1": nil} {
		if err := o.AgentShell(context.Background(), []string{"boot/cli@9", process}, true); !errors.Is(err, want) {
			t.Errorf("%s: %v", process, err)
		}
	}
}

func TestATailTellsOfChangesAsTheyHappen(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	ctx, o, me := context.Background(), h.s.Operator(), human()
	a := h.legacy("a").registered("a")
	h.legacy("b").registered("b")
	first, err := o.Tail(ctx, me, "", -1, 10000)
	if err != nil || len(first.Changes) != 0 {
		t.Fatalf("%+v %v", first, err)
	}
	done := make(chan *Tailed)
	go func() { p, _ := o.Tail(ctx, me, "", first.After, 20000); done <- p }()
	await(t, "the tail", func() bool {
		h.s.signals.mu.Lock()
		defer h.s.signals.mu.Unlock()
		return len(h.s.signals.waiters[topicAny]) > 0
	})
	before := len(h.lines())
	id := a.call("send", m{"to": "b", "body": "x"}).want("").str("message_id")
	p := <-done
	if len(p.Changes) != 1 || p.Changes[0].MessageID != id || p.Changes[0].After != "queued" || p.After <= first.After {
		t.Errorf("%+v", p)
	}
	if n := len(h.lines()) - before; n != 1 {
		t.Errorf("%d records, want one: a following page has no record", n)
	}
	if p, err := o.Tail(ctx, me, "", p.After, 0); err != nil || len(p.Changes) != 0 {
		t.Errorf("%+v %v", p, err)
	}
}

// A trace reports an invalid signature for an envelope in which a signed field was changed
// after the message was accepted, and a foreign one for a sender of another node.
func TestAForgedEnvelopeShowsInATrace(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a := h.legacy("a").registered("a")
	h.legacy("b").registered("b")
	a.call("send", m{"to": "b", "body": "x"}).want("")
	es, err := h.book.Desk().Mailbox(context.Background(), peerID(h.legacy("b")), true)
	if err != nil || len(es) != 1 {
		t.Fatal(es, err)
	}
	forge := map[string]func(*mail.Envelope){
		"nothing":   func(*mail.Envelope) {},
		"sender":    func(e *mail.Envelope) { e.From.Name = "b" },
		"principal": func(e *mail.Envelope) { e.From.Principal = "box uid:0" },
		"lineage":   func(e *mail.Envelope) { e.From.Lineage = "parent" },
		"authority": func(e *mail.Envelope) { e.Authority = "operator" },
		"time":      func(e *mail.Envelope) { e.SentAt++ },
		"digest":    func(e *mail.Envelope) { e.BodySHA256 = strings.Repeat("0", 64) },
		"recipient": func(e *mail.Envelope) { e.PeerID = "01JC000000000000000000000A" },
		"id":        func(e *mail.Envelope) { e.ID = "01JC000000000000000000000A" },
		"boundary": func(e *mail.Envelope) {
			e.From.Name, e.From.Namespace = "a1", strings.TrimPrefix(e.From.Namespace, "d")
		},
	}
	for name, f := range forge {
		e := es[0]
		f(&e)
		want := "invalid"
		if name == "nothing" {
			want = "valid"
		}
		if got := h.s.envelopes.signature(&e.Message, e.PeerID); got != want {
			t.Errorf("%s changed: %s", name, got)
		}
	}
	e := es[0]
	e.From.Principal = "other uid:1000"
	if got := h.s.envelopes.signature(&e.Message, e.PeerID); got != "foreign" {
		t.Error(got)
	}
}

// Fsck matches a message to several peers with its one record, and reports the message once
// when the record is missing.
func TestFsckKnowsAMessageToSeveral(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a := h.legacy("a").registered("a")
	h.legacy("b").registered("b")
	h.legacy("c").registered("c")
	a.call("send", m{"to": []string{"b", "c", "a"}, "body": "x"}).want("")
	c, err := h.s.Operator().Fsck(context.Background(), human(), false)
	if err != nil || !c.OK || len(c.Unrecorded)+len(c.Unstored) != 0 || c.Accepted != 3 {
		t.Errorf("%+v %v", c, err)
	}
	h.s.o.AuditDir = t.TempDir()
	if c, err = h.s.Operator().Fsck(context.Background(), human(), false); err != nil || len(c.Unrecorded) != 1 {
		t.Errorf("%+v %v", c, err)
	}
}

func TestFsckFindsARecordWithoutAMessage(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a := h.legacy("a").registered("a")
	p, err := h.gate.Enter(gate.Act{Who: a.who, Action: "agent.send", Server: "", Name: "x", Source: source}.Deferred())
	if err != nil {
		t.Fatal(err)
	}
	const id = "01JC000000000000000000000A"
	if _, err := h.gate.Record(p.As("agent.send", "agent/send", "r").Line(field("message", id))); err != nil {
		t.Fatal(err)
	}
	c, err := h.s.Operator().Fsck(context.Background(), human(), false)
	if err != nil || !slices.Equal(c.Unstored, []string{id}) || len(c.Unrecorded) != 0 {
		t.Errorf("%+v %v", c, err)
	}
	h.s.o.AuditDir = t.TempDir() // another, empty log
	a.call("send", m{"to": "a", "body": "x"}).want("")
	c, err = h.s.Operator().Fsck(context.Background(), human(), false)
	if err != nil || len(c.Unrecorded) != 1 {
		t.Errorf("%+v %v", c, err)
	}
}

func TestAHookCountsAndTellsOnce(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	ctx := context.Background()
	a := h.legacy("a").registered("a")
	b := h.legacy("b").registered("b")
	hook := func(processes ...string) HookCounts {
		who, _ := process("hook")
		c, err := h.s.Hook(ctx, who, "", processes)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := hook("boot/hook@1", "boot/elsewhere@1"); c.Known {
		t.Errorf("%+v", c)
	}
	if c := hook("boot/hook@1", "boot/sh@1", "boot/a@1"); !c.Known || c.Unread != 0 || c.Tell {
		t.Errorf("%+v", c)
	}
	if r := b.call("send", m{"to": "a", "body": "x"}).want(""); r.str("deliveries.0.wake") != "hook" {
		t.Errorf("%s", r.raw)
	}
	if c := hook("boot/a@1"); c.Unread != 1 || c.Newest != 1 || !c.Tell {
		t.Errorf("%+v", c)
	}
	if c := hook("boot/a@1"); c.Unread != 1 || c.Tell {
		t.Errorf("reported twice: %+v", c)
	}
	b.call("send", m{"to": "a", "body": "y"}).want("")
	in := a.call("inbox", m{}).want("")
	if c := hook("boot/a@1"); c.Unread != 0 || c.Tell {
		t.Errorf("a message that was read is reported: %+v", c)
	}
	_ = in
	stranger := principal.New("token:ci").WithLocal()
	if c, err := h.s.Hook(ctx, stranger, "", []string{"boot/a@1"}); err != nil || c.Known {
		t.Errorf("another principal learns %+v %v", c, err)
	}
}

func TestMeasuresCount(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a := h.legacy("a").registered("a")
	h.legacy("b").registered("b")
	a.call("send", m{"to": "b", "body": "x"}).want("")
	a.call("send", m{"to": "ghost", "body": "x"}).want("UNKNOWN_RECIPIENT")
	got, err := h.s.Measure(context.Background())
	if err != nil || got.Accepted != 1 || got.States["queued"] != 1 || got.Peers["awake"] != 2 || got.Sends["accepted"] != 1 || got.Sends["UNKNOWN_RECIPIENT"] != 1 {
		t.Errorf("%+v %v", got, err)
	}
}
