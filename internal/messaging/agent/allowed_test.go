package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream"
)

const noReading = `@id("hush") forbid (principal, action == Action::"agent.read", resource);`

// A wait whose caller has lost the right to read is refused without any mail, and with one
// record. It ends when the change of policy is announced, or before that with mail or its time.
func TestAWaitEndsWithTheRightToIt(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"inbox", "wait"} {
		for _, by := range []string{"the policy", "mail", "time"} {
			t.Run(tool+" by "+by, func(t *testing.T) {
				t.Parallel()
				h := build(t, plan{})
				a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
				limit := 20000
				if by == "time" {
					limit = 700
				}
				done, waits := make(chan *reply), make(chan upstream.Event, 1)
				go func() {
					r, err := a.try(t.Context(), tool, m{"wait_ms": limit}, func(e upstream.Event) { waits <- e })
					if err != nil {
						t.Error(err)
					}
					done <- r
				}()
				<-waits
				before := len(h.lines())
				h.gate.SetPolicy(h.rules(noReading))
				switch by {
				case "the policy":
					h.s.PolicyChanged()
				case "mail":
					b.call("send", m{"to": "a", "body": "canary"}).want("")
				}
				begin := time.Now()
				r := (<-done).want("NOT_ALLOWED")
				if time.Since(begin) > 10*time.Second || strings.Contains(string(r.raw), "canary") {
					t.Errorf("after %v: %s", time.Since(begin), r.raw)
				}
				refused := 0
				for _, l := range h.lines()[before:] {
					if l.Rule == "agent.NOT_ALLOWED" && l.Action == "agent.read" && l.Detail["policy"] == "hush" {
						refused++
					}
				}
				if refused != 1 {
					t.Errorf("%d records of the refusal: %+v", refused, h.lines()[before:])
				}
			})
		}
	}
}

// ask calls a method other than tools/call, as the relay does.
func (c *agentClient) ask(t *testing.T, method string) upstream.Reply {
	t.Helper()
	p, err := c.h.gate.Enter(gate.Act{Who: c.who, Session: c.session, Action: method, Server: ServerName, Name: inboxURI}.Deferred())
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.conn.Call(gate.WithPass(context.Background(), p), &upstream.Request{Method: method, Params: []byte(`{"uri":"` + inboxURI + `"}`)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheInboxResourceNeedsTheRightToRead(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	h.s.minGap = 20 * time.Millisecond
	a, b, c := h.legacy("a").registered("a"), h.legacy("b").registered("b"), h.modern("c").registered("c")
	if r := a.ask(t, "resources/subscribe"); r.Error != nil {
		t.Fatal(r.Error)
	}
	heard := c.listen()
	next1(t, heard.events) // the acknowledgement
	b.call("send", m{"to": "a", "body": "one"}).want("")
	b.call("send", m{"to": "c", "body": "one"}).want("")
	next1(t, a.events)
	next1(t, heard.events)

	h.gate.SetPolicy(h.rules(noReading))
	h.s.PolicyChanged()
	for _, method := range []string{"resources/read", "resources/subscribe"} {
		if r := a.ask(t, method); r.Error == nil || r.Error.Code != gate.CodeDenied || r.Result != nil {
			t.Errorf("%s: %s %v", method, r.Result, r.Error)
		}
	}
	deaf := c.listen()
	if ack := next1(t, deaf.events); string(rawjson.Get(ack.Params, "notifications")) != "{}" {
		t.Errorf("granted: %s", ack.Params)
	}
	b.call("send", m{"to": "a", "body": "two"}).want("")
	b.call("send", m{"to": "c", "body": "two"}).want("")
	none(t, a.events, 200*time.Millisecond)
	none(t, heard.events, 50*time.Millisecond)
	none(t, deaf.events, 50*time.Millisecond)

	// With the right restored the notifications are sent.
	h.gate.SetPolicy(h.rules(""))
	h.s.PolicyChanged()
	next1(t, a.events)
	next1(t, heard.events)
}
