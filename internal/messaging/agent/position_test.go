package agent

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/upstream"
)

// bodiesOf returns the bodies in an answer of inbox.
func bodiesOf(r *reply) (out []string) {
	for i := range r.len("messages") {
		out = append(out, r.str(fmt.Sprintf("messages.%d.body", i)))
	}
	return out
}

func (r *reply) wantBodies(want ...string) *reply {
	r.t.Helper()
	if got := bodiesOf(r.want("")); !slices.Equal(got, want) {
		r.t.Fatalf("gave %q, want %q", got, want)
	}
	return r
}

// stateOf is the state of a sent message that has one recipient.
func (c *agentClient) stateOf(sent *reply) string {
	c.h.t.Helper()
	return c.call("message_status", m{"message_id": sent.str("message_id")}).want("").str("deliveries.0.state")
}

// An inbox without a cursor continues where the last one ended: it confirms the messages that
// the last one gave, gives the new ones, and waits when there are none.
func TestInboxGoesOnWhereItEnded(t *testing.T) {
	t.Parallel()
	for era, open := range map[string]func(*house, string) *agentClient{"legacy": (*house).legacy, "modern": (*house).modern} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			h := build(t, plan{})
			a, b := open(h, "a").registered("a"), open(h, "b").registered("b")
			one := b.call("send", m{"to": "a", "body": "1"}).want("")
			two := b.call("send", m{"to": "a", "body": "2"}).want("")
			a.call("inbox", m{"max": 1}).wantBodies("1")
			if s := b.stateOf(one); s != "leased" {
				t.Fatalf("the first is %s before any confirmation", s)
			}
			a.call("inbox", m{"max": 1}).wantBodies("2")
			if one, two := b.stateOf(one), b.stateOf(two); one != "acked" || two != "leased" {
				t.Fatalf("the first is %s, the second %s", one, two)
			}
			done := make(chan *reply)
			go func() { done <- a.call("inbox", m{"wait_ms": 30000}) }()
			await(t, "a wait, with nothing new", func() bool { return h.s.sessions.waiting() == 1 })
			await(t, "the confirmation of the second, while its recipient waits for more", func() bool { return b.stateOf(two) == "acked" })
			b.call("send", m{"to": "a", "body": "3"}).want("")
			if r := (<-done).wantBodies("3"); r.at("messages.0.redelivered") != false || r.at("timed_out") != false {
				t.Errorf("%s", r.raw)
			}
			if r := a.call("inbox", m{"wait_ms": 30}).wantBodies(); r.at("timed_out") != true || r.num("pending") != 0 {
				t.Errorf("%s", r.raw)
			}
		})
	}
}

// The messages of an answer that may have been lost are given again, marked as redelivered,
// and are not confirmed before that.
func TestAPossiblyLostAnswerIsGivenAgain(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(h *house, a *agentClient, state string) (*house, *agentClient){
		"the session ends, and another one takes over": func(h *house, a *agentClient, _ string) (*house, *agentClient) {
			a.conn.Close()
			return h, h.legacy("heir").registered("a")
		},
		"the process is killed": func(h *house, a *agentClient, _ string) (*house, *agentClient) {
			a.witness.kill()
			return h, h.legacy("heir").registered("a")
		},
		"the daemon restarts": func(h *house, _ *agentClient, state string) (*house, *agentClient) {
			h.close()
			h = build(h.t, plan{state: state})
			return h, h.legacy("a")
		},
		"the agent begins again in its session": func(h *house, a *agentClient, _ string) (*house, *agentClient) {
			return h, a.registered("a")
		},
		"the name went to another session and came back": func(h *house, a *agentClient, _ string) (*house, *agentClient) {
			a.conn.Close()
			other := h.legacy("other").registered("a")
			other.conn.Close()
			await(h.t, "the ended session is forgotten, whose key comes back", func() bool {
				h.s.sessions.mu.RLock()
				defer h.s.sessions.mu.RUnlock()
				return h.s.sessions.byKey[a.who.Name()+"\x00"+SessionOf(a.who, a.session)] == nil
			})
			return h, h.legacy("a").registered("a")
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			state := t.TempDir()
			h := build(t, plan{state: state})
			a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
			sent := b.call("send", m{"to": "a", "body": "1"}).want("")
			a.call("inbox", m{}).wantBodies("1")
			h, a = lose(h, a, state)
			r := a.call("inbox", m{"wait_ms": 30000}).wantBodies("1")
			if r.at("messages.0.redelivered") != true {
				t.Errorf("%s", r.raw)
			}
			es, _, err := h.book.Desk().Trace(t.Context(), sent.str("message_id"))
			if err != nil || len(es) != 1 || es[0].State != mail.Leased {
				t.Errorf("%+v, %v", es, err)
			}
			a.call("inbox", m{}).wantBodies()
			if es, _, err = h.book.Desk().Trace(t.Context(), sent.str("message_id")); err != nil || es[0].State != mail.Acked {
				t.Errorf("%+v, %v", es, err)
			}
		})
	}
}

// The messages of an answer whose client had left are not confirmed by the next inbox, and
// are given again.
func TestAnAnswerToAClientThatLeftConfirmsNothing(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
	sent := b.call("send", m{"to": "a", "body": "1"}).want("")
	r, err := a.try(upstream.WithLeft(t.Context(), func() bool { return true }), "inbox", m{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.wantBodies("1")
	if r := a.call("inbox", m{}).wantBodies("1"); r.at("messages.0.redelivered") != true {
		t.Errorf("%s", r.raw)
	}
	if s := b.stateOf(sent); s != "leased" {
		t.Errorf("it is %s", s)
	}
	a.call("inbox", m{}).wantBodies()
}

// For a caller that passes cursors messages are confirmed by cursors only.
func TestACallerWithCursorsConfirmsByThemAlone(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b := h.legacy("a"), h.legacy("b").registered("b")
	cursor := a.call("register", m{"name": "a"}).want("").str("cursor")
	b.call("send", m{"to": "a", "body": "1"}).want("")
	first := a.call("inbox", m{"after": cursor}).wantBodies("1")
	b.call("send", m{"to": "a", "body": "2"}).want("")
	a.call("inbox", m{"after": cursor}).wantBodies("1", "2")
	a.call("inbox", m{}).wantBodies("1", "2")
	a.call("inbox", m{"after": first.str("cursor")}).wantBodies("2")
	a.call("inbox", m{"peek": true}).wantBodies("2")
	a.call("inbox", m{"after": cursor, "peek": true}).wantBodies("2")
}

// A peek confirms nothing, and the messages that it shows do not count as given.
func TestAPeekLeavesThePosition(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
	b.call("send", m{"to": "a", "body": "1"}).want("")
	a.call("inbox", m{"peek": true}).wantBodies("1")
	a.call("inbox", m{}).wantBodies("1")
	b.call("send", m{"to": "a", "body": "2"}).want("")
	a.call("inbox", m{"peek": true}).wantBodies("1", "2")
	a.call("inbox", m{}).wantBodies("2")
}

// A truncated message is not confirmed by the next inbox, which gives it whole.
func TestATruncatedMessageIsGivenAgainWhole(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
	long := strings.Repeat("x", 60000)
	b.call("send", m{"to": "a", "body": long}).want("")
	if r := a.call("inbox", m{}).want(""); r.at("messages.0.truncated") != true {
		t.Fatalf("%.300s", r.raw)
	}
	a.call("inbox", m{}).wantBodies(long)
	a.call("inbox", m{}).wantBodies()
}

// A reply confirms the message that it answers, and not the other messages that were given
// with it.
func TestAReplyConfirmsWhatItAnswers(t *testing.T) {
	t.Parallel()
	for what, to := range map[string]any{"alone": "b", "and to others": []string{"c", "b", "a"}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := build(t, plan{})
			a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
			h.legacy("c").registered("c")
			one := b.call("send", m{"to": "a", "body": "question 1"}).want("")
			two := b.call("send", m{"to": "a", "body": "question 2"}).want("")
			a.call("inbox", m{}).wantBodies("question 1", "question 2")
			a.call("send", m{"to": to, "body": "answer", "reply_to": one.str("message_id")}).want("")
			if one, two := b.stateOf(one), b.stateOf(two); one != "acked" || two != "leased" {
				t.Errorf("the first is %s, the second %s", one, two)
			}
			l := h.lines()
			if sent := last(l, "agent.send"); sent.Detail["confirmed"] != one.str("message_id") {
				t.Errorf("%+v", sent)
			}
			a.conn.Close()
			r := h.legacy("heir").registered("a").call("inbox", m{}).want("")
			if got := bodiesOf(r)[0]; got != "question 2" {
				t.Errorf("%s", r.raw)
			}
		})
	}
}

// A reply that is refused confirms nothing.
func TestARefusedReplyConfirmsNothing(t *testing.T) {
	t.Parallel()
	h := build(t, plan{mail: mail.Limits{MailboxMessages: 2}})
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
	one := b.call("send", m{"to": "a", "body": "question"}).want("")
	a.call("inbox", m{}).wantBodies("question")
	for i := range 2 {
		a.call("send", m{"to": "b", "body": fmt.Sprint(i)}).want("")
	}
	a.call("send", m{"to": "b", "body": "answer", "reply_to": one.str("message_id")}).want("MAILBOX_FULL")
	if s := b.stateOf(one); s != "leased" {
		t.Errorf("it is %s", s)
	}
}

// last returns the newest record of an action.
func last(all []entry, action string) entry {
	for _, l := range slices.Backward(all) {
		if l.Action == action {
			return l
		}
	}
	return entry{}
}

// In random histories with lost sessions no message is confirmed before a session has seen it
// and made another call, and in the end every message has been seen.
func TestNothingIsConfirmedUnseen(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	h := build(t, plan{limits: Limits{SendsPerMinute: 100000, Burst: 10000}, mail: mail.Limits{Attempts: 100, SenderMessages: 1000}})
	b := h.legacy("b").registered("b")
	a := h.legacy("a0").registered("a")
	seen := make(map[string]bool) // given to a session that made another call afterwards
	given := make(map[string]bool)
	sent, sessions, cursor := 0, 1, ""
	check := func() {
		t.Helper()
		es, _, err := h.book.Desk().Changes(t.Context(), "", 0, 100000)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range es {
			if c.After == mail.Acked && !seen[c.MessageID] {
				t.Fatalf("seed %d: %s is confirmed and was not seen", seed, c.MessageID)
			}
		}
	}
	for range 300 {
		switch n := r.IntN(10); {
		case n < 4 && sent < 150:
			sent++
			b.call("send", m{"to": "a", "body": fmt.Sprint("message ", sent)}).want("")
		case n < 8:
			args := m{"max": 1 + r.IntN(4), "peek": r.IntN(8) == 0}
			if cursor != "" && r.IntN(4) == 0 {
				args["after"] = cursor
			}
			for id := range given { // this call shows that their answer arrived
				seen[id] = true
			}
			got := a.call("inbox", args).want("")
			cursor = got.str("cursor")
			for i := range got.len("messages") {
				given[got.str(fmt.Sprintf("messages.%d.message_id", i))] = true
			}
		default: // the last answer was lost with its session
			if r.IntN(2) == 0 {
				a.conn.Close()
			} else {
				a.witness.kill()
			}
			a = h.legacy(fmt.Sprint("a", sessions)).registered("a")
			sessions++
			given, cursor = make(map[string]bool), ""
		}
		check()
	}
	for id := range given {
		seen[id] = true
	}
	for range 200 {
		got := a.call("inbox", m{}).want("")
		for i := range got.len("messages") {
			seen[got.str(fmt.Sprintf("messages.%d.message_id", i))] = true
		}
		if got.len("messages") == 0 {
			break
		}
	}
	if len(seen) != sent {
		t.Errorf("seed %d: %d of %d messages were seen", seed, len(seen), sent)
	}
}
