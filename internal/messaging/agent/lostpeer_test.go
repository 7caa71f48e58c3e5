package agent

import (
	"context"
	"testing"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/audit"
)

// step is a context that runs do when the store checks it for the n-th time: between two steps
// of a read, or before or after them.
type step struct {
	context.Context
	n  int
	do func()
}

func (s *step) Err() error {
	if s.n--; s.n == 0 {
		s.do()
	}
	return s.Context.Err()
}

// A session that registers while it reads its mailbox without a peer has its peer afterwards,
// whichever of the two comes first at the book: in its first registration, and when it takes
// the name back that another session has taken from it.
func TestARegisterDuringAReadIsNotUndone(t *testing.T) {
	t.Parallel()
	reads := map[string]func(ctx context.Context, c *agentClient, on *session){
		"the resource": func(ctx context.Context, c *agentClient, on *session) { c.h.s.look(ctx, on) },
		"a stream": func(ctx context.Context, c *agentClient, on *session) {
			(&pusher{s: c.h.s, on: on, may: func() bool { return true }, tell: func() {}}).look(ctx)
		},
		"wait": tries("wait", m{"wait_ms": 1}),
		"read": tries("read", m{}),
		"send": tries("send", m{"to": "nobody", "body": "x"}),
	}
	for name, read := range reads {
		for state, prepare := range map[string]func(*agentClient){"new": func(*agentClient) {}, "taken over": takenOver} {
			t.Run(name+" "+state, func(t *testing.T) {
				t.Parallel()
				h := build(t, plan{})
				during := 0
				for n, began := 1, true; began; n++ {
					c := h.legacy(string('a' + rune(n%26)))
					prepare(c)
					on := h.s.sessions.of(c.who, c.session, asStream)
					began = false
					var registered *reply
					ctx := &step{Context: context.Background(), n: n, do: func() {
						began = true
						registered = c.call("register", m{"name": "x" + c.session})
					}}
					read(ctx, c, on)
					if began {
						during++
						if id := registered.want("").str("peer_id"); h.s.sessions.peerOf(on) != id {
							t.Errorf("step %d: the session has peer %q, want %q", n, h.s.sessions.peerOf(on), id)
						}
					}
					c.conn.Close()
				}
				if during < 2 {
					t.Errorf("only %d steps", during)
				}
			})
		}
	}
}

func tries(tool string, args m) func(context.Context, *agentClient, *session) {
	return func(ctx context.Context, c *agentClient, _ *session) { c.try(ctx, tool, args, nil) }
}

// takenOver makes c a session whose name another one has taken, which has ended by now.
func takenOver(c *agentClient) {
	c.h.t.Helper()
	c.registered("x" + c.session)
	other := c.h.legacy(c.session + "-other")
	owner := c.h.s.sessions.ownerOf(c.h.s.sessions.of(other.who, other.session, asCall))
	r := mail.Registration{Name: "x" + c.session, Namespace: "default"}
	_, err := c.h.book.Register(c.h.t.Context(), owner, r, []string{SessionOf(c.who, c.session)}, func(*mail.Registered) any {
		return &audit.Record{Kind: audit.Event, Source: source, Action: "agent.register"}
	})
	if err != nil {
		c.h.t.Error(err)
	}
	other.witness.kill()
}
