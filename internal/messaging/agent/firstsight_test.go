package agent

import (
	"context"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream"
)

// A stream that began before the session had a peer reports later mail, whichever request is
// the first that sees the peer. While a register is in progress that may be any other one:
// the book has the peer, and the register has not noted it yet.
func TestAnyFirstSightOfAPeerReachesTheStreams(t *testing.T) {
	t.Parallel()
	for what, see := range map[string]func(*agentClient){
		"reading the resource": func(c *agentClient) { c.request(t, "resources/read") },
		"a hook": func(c *agentClient) {
			on := c.h.s.sessions.of(c.who, c.session, asStream)
			if _, _, got, err := c.h.s.hookCounts(context.Background(), on); err != nil || !got.Known {
				t.Errorf("a hook: %+v %v", got, err)
			}
		},
		"a call":         func(c *agentClient) { c.call("inbox", m{}).want("") },
		"a further call": func(c *agentClient) { c.call("read", m{}).want("") },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := build(t, plan{})
			h.s.minGap = 20 * time.Millisecond
			a, b := h.legacy("a"), h.legacy("b").registered("b")
			a.request(t, "resources/subscribe")
			on := h.s.sessions.of(a.who, a.session, asStream)
			await(t, "the stream", func() bool { return h.s.signals.joined(topicSession(on.owner.Session)) })
			time.Sleep(20 * time.Millisecond) // the stream's first look is not observable
			pass := a.enter(t, "tools/call", "register")
			line := func(*mail.Registered) any { return pass.Line() }
			if _, err := h.book.Register(context.Background(), on.owner, mail.Registration{Name: "a"}, nil, line); err != nil {
				t.Fatal(err)
			}
			see(a)
			b.call("send", m{"to": "a", "body": "x"}).want("")
			next1(t, a.events)
		})
	}
}

// joined reports whether anything waits for the topic.
func (g *signals) joined(topic string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiters[topic]) > 0
}

// enter decides an act of the client.
func (c *agentClient) enter(t *testing.T, action, name string) gate.Pass {
	t.Helper()
	pass, err := c.h.gate.Enter(gate.Act{Who: c.who, Session: c.session, Action: action, Server: ServerName, Name: name}.Deferred())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pass.Leave("ok", 0) })
	return pass
}

// request makes a request about the inbox's resource.
func (c *agentClient) request(t *testing.T, method string) {
	t.Helper()
	ctx := gate.WithPass(context.Background(), c.enter(t, method, inboxURI))
	r, err := c.conn.Call(ctx, &upstream.Request{Method: method, Params: []byte(`{"uri":"` + inboxURI + `"}`)}, nil)
	if err != nil || r.Error != nil {
		t.Fatalf("%s: %+v %v", method, r, err)
	}
}
