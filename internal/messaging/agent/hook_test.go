package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

// A hook of a remote caller, or of one without the right to read, is refused: it tells no
// counts and changes nothing. Each hook leaves one record, and none is answered without one.
func TestAHookNeedsTheRightToRead(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
	b.call("send", m{"to": "a", "body": "x"}).want("")
	ask := func(who *principal.Principal) (HookCounts, []entry, error) {
		before := len(h.lines())
		c, err := h.s.Hook(context.Background(), who, "", []string{"boot/a@1"})
		return c, h.lines()[before:], err
	}
	here, _ := process("hook")
	away := principal.New(principal.UID(1000), principal.Fact{Name: "uid", Value: "1000", Grade: principal.Attested})
	denied := func(what string, who *principal.Principal, rule string) {
		t.Helper()
		c, l, err := ask(who)
		var no *gate.Refusal
		if !errors.As(err, &no) || no.Code != gate.CodeDenied || c != (HookCounts{}) {
			t.Errorf("%s: %+v %v", what, c, err)
		}
		if len(l) != 1 || l[0].Decision != "deny" || l[0].Rule != rule || l[0].Action != "agent.read" {
			t.Errorf("%s: %+v", what, l)
		}
		if w := h.s.sessions.wake(peerID(a), true); w != "none" {
			t.Errorf("%s wakes its peer by %s", what, w)
		}
	}
	denied("a remote caller", away, policyNoMessaging)
	denied("a remote token", principal.New(principal.Token("ci")), policyNoMessaging)
	denied("a caller without a known user", principal.New("loopback:unknown").WithLocal(), policyNoMessaging)
	h.gate.SetPolicy(h.rules(noReading))
	denied("a caller without the right to read", here, "hush")
	h.gate.SetPolicy(h.rules(""))
	if c, l, err := ask(here); err != nil || !c.Tell || c.Unread != 1 || len(l) != 1 || l[0].Decision != "allow" || l[0].Resource != "agent/hook" || l[0].Detail["unread"] != "1" {
		t.Errorf("%+v %v %+v", c, err, l)
	}
	ci := principal.New(principal.Token("ci")).WithLocal()
	if c, l, err := ask(ci); err != nil || c.Known || len(l) != 1 {
		t.Errorf("%+v %v %+v", c, err, l)
	}
	h.log.Close()
	b.call("send", m{"to": "a", "body": "y"}).want(mail.AuditUnavailable)
	if c, _, err := ask(here); err == nil || c != (HookCounts{}) {
		t.Errorf("an unrecorded hook: %+v %v", c, err)
	}
}

// A hook of a process with several sessions reports the newest session that lives.
func TestAHookMeansTheNewestSessionOfAProcess(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	who, _ := process("one")
	var all []*agentClient
	for _, s := range []string{"old", "mid", "new"} {
		all = append(all, h.open(who, "digest-"+s, false).registered(s))
	}
	b := h.legacy("b").registered("b")
	b.call("send", m{"to": "new", "body": "x"}).want("")
	for i := range 2 {
		b.call("send", m{"to": "mid", "body": fmt.Sprint(i)}).want("")
	}
	asker, _ := process("hook")
	unread := func() int {
		c, err := h.s.Hook(context.Background(), asker, "", []string{"boot/one@1"})
		if err != nil {
			t.Fatal(err)
		}
		return c.Unread
	}
	for range 20 {
		if n := unread(); n != 1 {
			t.Fatalf("%d unread", n)
		}
	}
	all[2].conn.Close()
	for range 20 {
		if n := unread(); n != 2 {
			t.Fatalf("%d unread after the end of the newest", n)
		}
	}
}

func TestAHookReportsTheNextMailboxOfItsSession(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
	tells := func() bool {
		c, err := h.s.Hook(t.Context(), a.who, a.session, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c.Tell
	}
	for i := range 3 {
		b.call("send", m{"to": "a", "body": fmt.Sprint(i)}).want("")
	}
	if !tells() || tells() {
		t.Error("a hook does not tell once")
	}
	a.call("unregister", m{}).want("")
	a.registered("c")
	b.call("send", m{"to": "c", "body": "x"}).want("")
	if !tells() {
		t.Error("a hook is silent about the next mailbox")
	}
}

// leaving is the context of a client that has left once left says so.
type leaving struct {
	context.Context
	left func() bool
}

func (l leaving) Err() error {
	if l.left() {
		return context.Canceled
	}
	return nil
}

// The next hook reports mail again if the client of a hook left before the answer.
func TestAHookWhoseClientLeftIsRepeated(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
	b.call("send", m{"to": "a", "body": "x"}).want("")
	before := len(h.lines())
	ctx := leaving{context.Background(), func() bool { return len(h.lines()) > before }}
	if _, err := h.s.Hook(ctx, a.who, a.session, nil); err != nil {
		t.Fatal(err)
	}
	if c, err := h.s.Hook(t.Context(), a.who, a.session, nil); err != nil || !c.Tell {
		t.Errorf("the next hook: %+v %v", c, err)
	}
}

// A message that was given and not confirmed becomes unread again when its lease ends: a hook
// tells of it again, once.
func TestAHookReportsMailThatReturnsToTheQueue(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
	hook := func() HookCounts {
		c, err := h.s.Hook(t.Context(), a.who, a.session, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	cursor := a.call("register", m{}).want("").str("cursor") // it covers no message
	for i := range 2 {
		b.call("send", m{"to": "a", "body": fmt.Sprint(i)}).want("")
	}
	for range 2 {
		if !hook().Tell || hook().Tell {
			t.Error("a hook does not tell once")
		}
		if r := a.call("inbox", m{"after": cursor, "max": 1}).want(""); r.len("messages") != 1 {
			t.Fatalf("%s", r.raw)
		}
		if c := hook(); c.Tell || c.Unread != 1 {
			t.Errorf("a hook tells again of what was not given: %+v", c)
		}
		h.pass(3 * time.Minute)
		if _, err := h.book.Sweep(t.Context()); err != nil { // the lease ends
			t.Fatal(err)
		}
	}
}

// A hook that tells of a newer message does not count as one that told of the message that the
// session was given before, and that comes back later.
func TestAHookReportsMailThatReturnsAfterNewerMail(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
	tells := func(want bool) {
		t.Helper()
		if c, err := h.s.Hook(t.Context(), a.who, a.session, nil); err != nil || c.Tell != want {
			t.Errorf("a hook: %+v %v, want %v", c, err, want)
		}
	}
	b.call("send", m{"to": "a", "body": "one"}).want("")
	tells(true)
	a.call("inbox", m{}).want("")
	b.call("send", m{"to": "a", "body": "two"}).want("")
	tells(true)
	tells(false)
	h.pass(3 * time.Minute)
	if _, err := h.book.Sweep(t.Context()); err != nil { // the lease ends
		t.Fatal(err)
	}
	tells(true)
	tells(false)
}

// A hook that read one mailbox of its session has told nothing of the next one.
func TestAHookThatReadAnotherMailboxHasNotTold(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
	for i := range 3 {
		b.call("send", m{"to": "a", "body": fmt.Sprint(i)}).want("")
	}
	before, moved := len(h.lines()), false
	ctx := leaving{context.Background(), func() bool {
		if !moved && len(h.lines()) > before { // it has read the mailbox, and its record is written
			moved = true
			a.call("unregister", m{}).want("")
			a.registered("c")
		}
		return false
	}}
	if c, err := h.s.Hook(ctx, a.who, a.session, nil); err != nil || c.Newest != 3 {
		t.Fatalf("%+v %v", c, err)
	}
	b.call("send", m{"to": "c", "body": "x"}).want("")
	if c, err := h.s.Hook(t.Context(), a.who, a.session, nil); err != nil || !c.Tell {
		t.Errorf("the next hook: %+v %v", c, err)
	}
}
