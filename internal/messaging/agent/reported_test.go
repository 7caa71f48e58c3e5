package agent

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/principal"
)

// waiting begins a call that waits; end cancels it.
func (c *agentClient) waiting(t *testing.T, tool string, args m) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	before := c.h.s.sessions.waiting()
	args["wait_ms"] = 50000
	go func() { defer close(done); _, _ = c.try(ctx, tool, args, nil) }()
	await(t, "the wait", func() bool { return c.h.s.sessions.waiting() > before })
	return func() { cancel(); <-done }
}

// ids returns the ids of the messages in an answer of inbox.
func ids(r *reply) (out []string) {
	for i := range r.len("messages") {
		out = append(out, r.str(fmt.Sprintf("messages.%d.message_id", i)))
	}
	return out
}

// watching subscribes a legacy client to its inbox, and waits for the stream.
func (c *agentClient) watching(t *testing.T) *agentClient {
	t.Helper()
	c.h.s.minGap = 20 * time.Millisecond
	c.request(t, "resources/subscribe")
	topic := topicSession(SessionOf(c.who, c.session))
	await(t, "the stream", func() bool { return c.h.s.signals.joined(topic) })
	time.Sleep(20 * time.Millisecond) // the stream's first look is not observable
	return c
}

// registers makes the book register the client's session, as a register does that has not
// noted its peer yet.
func (c *agentClient) registers(t *testing.T, name string) {
	t.Helper()
	pass := c.enter(t, "tools/call", "register")
	on := c.h.s.sessions.of(c.who, c.session, asStream)
	line := func(*mail.Registered) any { return pass.Line() }
	if _, err := c.h.book.Register(context.Background(), on.owner, mail.Registration{Name: name}, nil, line); err != nil {
		t.Fatal(err)
	}
}

// A message that was given and not confirmed becomes unread again when its lease ends, and a
// stream reports it again.
func TestAStreamReportsMailThatReturnsToTheQueue(t *testing.T) {
	t.Parallel()
	h := build(t, plan{mail: mail.Limits{Lease: 300 * time.Millisecond}})
	a, b := h.legacy("a").registered("a").watching(t), h.legacy("b").registered("b")
	cursor := a.call("register", m{}).want("").str("cursor") // it covers no message
	b.call("send", m{"to": "a", "body": "x"}).want("")
	next1(t, a.events)
	for range 2 {
		if r := a.call("inbox", m{"after": cursor}).want(""); r.len("messages") != 1 {
			t.Fatalf("%s", r.raw)
		}
		next1(t, a.events)
	}
}

// The numbers of one mailbox say nothing about those of the next one of the same session.
func TestAStreamReportsTheNextMailboxOfItsSession(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b := h.legacy("a").registered("a").watching(t), h.legacy("b").registered("b")
	for i := range 3 {
		b.call("send", m{"to": "a", "body": fmt.Sprint(i)}).want("")
		next1(t, a.events)
	}
	a.call("unregister", m{}).want("")
	a.registers(t, "c")
	b.call("send", m{"to": "c", "body": "x"}).want("") // before the stream knows the mailbox
	a.call("read", m{}).want("")
	next1(t, a.events)
}

// A call that waits for something else than any mail does not keep a stream from reporting
// mail, and is not what wakes the agent.
func TestACallThatWaitsForSomethingElseOwnsNoMail(t *testing.T) {
	t.Parallel()
	for what, args := range map[string]m{
		"inbox": {"thread_id": "01JC000000000000000000000A"},
		"wait":  {"mail": false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := build(t, plan{})
			a, b := h.legacy("a").registered("a").watching(t), h.legacy("b").registered("b")
			end := a.waiting(t, what, args)
			defer end()
			if r := b.call("send", m{"to": "a", "body": "x"}).want(""); r.str("deliveries.0.wake") != "subscribe" {
				t.Errorf("%s", r.raw)
			}
			next1(t, a.events)
			if h.s.sessions.waiting() != 1 {
				t.Error("the call has ended")
			}
		})
	}
}

// The stream of a shim that began before its first call reports the mail of the session that
// this call joins, also after the shim that it joined has ended.
func TestAStreamFollowsItsSessionToASibling(t *testing.T) {
	t.Parallel()
	h := build(t, plan{join: true})
	one, two := h.shim("one").registered("agent"), h.shim("two").watching(t)
	two.call("read", m{}).want("")
	b := h.legacy("b")
	b.namespace = "demo"
	b.registered("b")
	for _, body := range []string{"to both", "to the second"} {
		if r := b.call("send", m{"to": "agent", "body": body}).want(""); r.str("deliveries.0.wake") != "subscribe" {
			t.Errorf("%s: %s", body, r.raw)
		}
		next1(t, two.events)
		one.conn.Close()
	}
}

// shim opens a legacy session behind a shim of one agent.
func (h *house) shim(name string) *agentClient {
	who, w := process(name, principal.Fact{Name: factParent, Value: "boot/agent@1", Grade: principal.Observed})
	c := h.open(who, "digest-"+name, false)
	c.witness, c.namespace = w, "demo"
	return c
}

// The stream of a shim that makes no further call reports the mail of a sibling that gets a name
// later.
func TestAStreamFollowsASiblingThatRegistersLater(t *testing.T) {
	t.Parallel()
	h := build(t, plan{join: true})
	two := h.shim("two").watching(t)
	two.call("read", m{}).want("NOT_REGISTERED")
	h.shim("one").registered("agent")
	b := h.legacy("b")
	b.namespace = "demo"
	b.registered("b")
	if r := b.call("send", m{"to": "agent", "body": "x"}).want(""); r.str("deliveries.0.wake") != "subscribe" {
		t.Errorf("%s", r.raw)
	}
	next1(t, two.events)
}
