package agent

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/store"
)

// holdReaders uses all connections that read the database until release is called.
func (h *house) holdReaders() (release func()) {
	var begun, ended sync.WaitGroup
	over := make(chan struct{})
	for range 4 { // store.readers
		begun.Add(1)
		ended.Go(func() {
			if err := h.db.Read(context.Background(), func(*store.Tx) error { begun.Done(); <-over; return nil }); err != nil {
				h.t.Error(err)
			}
		})
	}
	begun.Wait()
	return func() { close(over); ended.Wait() }
}

// A second send to the same peer reads neither the sender nor the recipient.
func TestASecondSendReadsNoPeer(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
	a.call("send", m{"to": "b", "body": "one"}).want("")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	release := h.holdReaders()
	r, err := a.try(ctx, "send", m{"to": "b", "body": "two"}, nil)
	release()
	if err != nil {
		t.Fatal(err)
	}
	r.want("")
	in := b.call("inbox", m{}).want("")
	if in.len("messages") != 2 || in.str("messages.1.body") != "two" || in.str("messages.1.from.name") != "a" {
		t.Errorf("%s", in.raw)
	}
	first, second := h.sends()[0], h.sends()[1]
	for name := range first.Detail {
		if second.Detail[name] == "" {
			t.Errorf("the second record has no %s: %v", name, second.Detail)
		}
	}
	if second.Detail["peer"] != first.Detail["peer"] || second.Detail["recipients"] != first.Detail["recipients"] || second.Rule != first.Rule {
		t.Errorf("%+v\n%+v", first, second)
	}
}

// sends returns the records of sends so far.
func (h *house) sends() (out []entry) {
	for _, l := range h.lines() {
		if l.Action == "agent.send" {
			out = append(out, l)
		}
	}
	return out
}

// A message goes to the peer that has the name when it is stored.
func TestANameThatHasGoneToAnotherPeer(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b, c := h.legacy("a").registered("a"), h.legacy("b").registered("tester"), h.legacy("c")
	a.call("send", m{"to": "tester", "body": "one"}).want("")
	b.call("inbox", m{}).want("")
	b.call("inbox", m{}).want("")
	b.call("unregister", m{}).want("")
	c.registered("tester")
	a.call("send", m{"to": "tester", "body": "two"}).want("")
	if in := c.call("inbox", m{}).want(""); in.len("messages") != 1 || in.str("messages.0.body") != "two" {
		t.Errorf("%s", in.raw)
	}
}

// Policy decides on the sender and the recipient as they are when the message is stored, and
// a refusal has one record.
func TestPolicyDecidesOnPeersAsTheyAre(t *testing.T) {
	t.Parallel()
	rules := `forbid (principal, action == Action::"agent.send", resource) when { context has args && context.args has to && context.args.to.name == "closed" };
forbid (principal, action == Action::"agent.send", resource) when { context has args && context.args has from && context.args.from.name == "mute" };`
	h := build(t, plan{rules: rules})
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("open")
	send := func(body string) *reply { return a.call("send", m{"to": "open", "body": body}) }
	send("one").want("")
	b.registered("closed") // open is now an alias of it
	send("two").want(NotAllowed)
	b.registered("open")
	send("three").want("")
	a.registered("mute")
	send("four").want(NotAllowed)
	a.registered("a")
	send("five").want("")
	if in := b.call("inbox", m{}).want(""); in.len("messages") != 3 {
		t.Errorf("%s", in.raw)
	}
	if n := len(h.sends()); n != 5 {
		t.Errorf("%d records of 5 sends", n)
	}
}
