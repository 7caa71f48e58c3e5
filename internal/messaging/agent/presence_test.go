package agent

import (
	"context"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/principal"
)

// toldOf returns presence and wake of a peer from the answer of a send, and fails if
// list_peers says something else.
func toldOf(t *testing.T, watcher *agentClient, name, body string) string {
	t.Helper()
	listed := ""
	l := watcher.call("list_peers", m{}).want("")
	for i := range l.len("peers") {
		if p := l.at("peers").([]any)[i].(map[string]any); p["name"] == name {
			listed = p["presence"].(string) + " " + p["wake"].(string)
		}
	}
	s := watcher.call("send", m{"to": name, "body": body}).want("")
	sent := s.str("deliveries.0.presence") + " " + s.str("deliveries.0.wake")
	if name != mail.Operator && sent != listed {
		t.Errorf("a send says %q of %s, the list %q", sent, name, listed)
	}
	return sent
}

// idle makes the last call of a session an old one.
func (h *house) idle(c *agentClient) {
	s := h.s.sessions.of(c.who, c.session, asStream)
	s.called.Store(1)
	h.later.Add(int64(2 * callTime))
}

// Presence and wake of an agent are right in each state: just called, silent, waiting, with
// hooks, with an ended session, taken over, and with an ended process.
func TestPresenceIsTrueForAgents(t *testing.T) {
	t.Parallel()
	h := build(t, plan{mail: mail.Limits{Session: time.Hour}})
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
	want := func(what, want string) {
		t.Helper()
		if got := toldOf(t, b, "a", what); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	want("it has just called", "awake none")
	h.idle(a)
	want("it is silent", "asleep none")
	h.s.Seen(a.who, a.session)
	want("its client gives signs of life", "asleep none")
	a.call("ack", m{"message_ids": ids(a.call("inbox", m{}).want(""))}).want("")
	h.idle(a)
	end := a.waiting(t, "wait", m{"mail": false})
	want("it waits for something else", "awake none")
	end()
	a.call("ack", m{"message_ids": ids(a.call("inbox", m{}).want(""))}).want("")
	h.idle(a)
	end = a.waiting(t, "inbox", m{})
	want("it waits for mail", "awake wait")
	end()
	h.idle(a)
	if _, err := h.s.Hook(t.Context(), a.who, a.session, nil); err != nil {
		t.Fatal(err)
	}
	want("it has hooks", "asleep hook")
	a.conn.Close()
	want("its session has ended", "gone none")
	heir := h.legacy("heir").registered("a")
	want("another session has its name", "awake none")
	heir.witness.kill()
	h.s.round(t.Context())
	want("its process has ended", "gone none")
}

// A silent agent with a living process is asleep after its lease has ended. One without a
// known process is gone.
func TestASilentProcessIsNotGone(t *testing.T) {
	t.Parallel()
	h := build(t, plan{mail: mail.Limits{Session: 100 * time.Millisecond}})
	b := h.legacy("b").registered("b")
	known := h.legacy("known").registered("known")
	h.open(principal.New(principal.Token("ci")).WithLocal(), "s-ci", false).registered("unknown")
	h.idle(known)
	await(t, "the end of the leases", func() bool { return !h.live("known") && !h.live("unknown") })
	if p := presenceOf(b, "known"); p != "asleep" {
		t.Errorf("a process that lives is %s", p)
	}
	all, err := h.s.Operator().Peers(t.Context(), Caller{Who: known.who, Processes: []string{"boot/human"}, Complete: true})
	if err != nil {
		t.Fatal(err)
	}
	presence := "not listed"
	for _, p := range all {
		if p.Name == "unknown" {
			presence = p.Presence
		}
	}
	if presence != "gone" {
		t.Errorf("a peer without a known process is %s", presence)
	}
}

// The operator is awake for a time after a command and while a tail runs, and asleep
// otherwise. The commands of an agent's shell do not count.
func TestPresenceIsTrueForTheOperator(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	b := h.legacy("b").registered("b")
	me := Caller{Who: b.who, Processes: []string{"boot/human"}, Complete: true}
	want := func(what, want string) {
		t.Helper()
		if got := toldOf(t, b, mail.Operator, what); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	want("no command was given", "asleep none")
	if _, err := h.s.Operator().Inbox(t.Context(), Caller{Who: b.who, Processes: []string{"boot/b@1"}, Complete: true}, "", false, false); err == nil {
		t.Fatal("an agent's shell is the operator")
	}
	want("an agent's shell has tried", "asleep none")
	if _, err := h.s.Operator().Inbox(t.Context(), me, "", false, false); err != nil {
		t.Fatal(err)
	}
	want("a command was given", "awake none")
	h.s.human.mu.Lock()
	h.s.human.last = time.Now().Add(-2 * callTime)
	h.s.human.mu.Unlock()
	want("that is long ago", "asleep none")
	ctx, cancel := context.WithCancel(t.Context())
	first, err := h.s.Operator().Tail(ctx, me, "b", -1, 0)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _, _ = h.s.Operator().Tail(ctx, me, "b", first.After, 50000) }()
	await(t, "a tail", func() bool { h.s.human.mu.Lock(); defer h.s.human.mu.Unlock(); return h.s.human.tails == 1 })
	want("a tail runs", "awake listen")
	cancel()
	<-done
}
