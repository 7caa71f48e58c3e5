package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/upstream"
)

// A message that arrives while a wait begins ends the wait: no wait of this test ends by its
// time, although four senders send meanwhile.
func TestNoWakeIsLostBetweenLookingAndWaiting(t *testing.T) {
	t.Parallel()
	h := build(t, plan{limits: Limits{SendsPerMinute: 100000, Burst: 10000}, mail: mail.Limits{SenderMessages: 1000}})
	const senders, each = 4, 30
	reader := h.modern("reader").registered("reader")
	var wg sync.WaitGroup
	var sent atomic.Int64
	for i := range senders {
		c := h.legacy(fmt.Sprint("s", i)).registered(fmt.Sprint("s", i))
		wg.Go(func() {
			for n := range each {
				if r := c.call("send", m{"to": "reader", "body": fmt.Sprint(i, " ", n)}); !r.failed {
					sent.Add(1)
				}
				time.Sleep(time.Duration(n%7) * time.Millisecond)
			}
		})
	}
	got, last, cursor := make(map[string]bool), 0, ""
	for len(got) < senders*each {
		args := m{"wait_ms": 20000, "max": 3}
		if cursor != "" {
			args["after"] = cursor
		}
		if len(got)%5 == 0 {
			if w := reader.call("wait", m{"wait_ms": 20000}); w.str("reason") != "mail" {
				t.Fatalf("a wait ended by %s with %d of %d", w.str("reason"), len(got), sent.Load())
			}
		}
		r := reader.call("inbox", args).want("")
		if r.at("timed_out") != false {
			t.Fatalf("a wait ended by its time with %d of %d", len(got), sent.Load())
		}
		for i := range r.len("messages") {
			seq := r.num(fmt.Sprintf("messages.%d.seq", i))
			if seq != last+1 {
				t.Fatalf("seq %d came after %d", seq, last)
			}
			last = seq
			got[r.str(fmt.Sprintf("messages.%d.message_id", i))] = true
		}
		cursor = r.str("cursor")
	}
	wg.Wait()
	if r := reader.call("inbox", m{"after": cursor}).want(""); r.num("pending") != 0 || int(sent.Load()) != senders*each {
		t.Errorf("%s of %d", r.raw, sent.Load())
	}
}

func TestAWaitHasACapAndSaysSo(t *testing.T) {
	t.Parallel()
	h := build(t, plan{limits: Limits{WaitCap: 30 * time.Millisecond}})
	a := h.legacy("a").registered("a")
	for _, ms := range []int{295000, 31} {
		if r := a.call("wait", m{"wait_ms": ms}).want(""); r.str("reason") != "timeout" || r.at("capped") != true || r.num("waited_ms") > 5000 {
			t.Errorf("%s", r.raw)
		}
	}
	if r := a.call("wait", m{"wait_ms": 5}).want(""); r.at("capped") != false || r.str("reason") != "timeout" {
		t.Errorf("%s", r.raw)
	}
	if r := a.call("inbox", m{"wait_ms": 295000}).want(""); r.at("timed_out") != true {
		t.Errorf("%s", r.raw)
	}
	if r := a.call("inbox", m{}).want(""); r.at("timed_out") != false {
		t.Errorf("%s", r.raw)
	}
	if l := (Limits{WaitCap: time.Hour}).withDefaults(); l.WaitCap != 295*time.Second {
		t.Errorf("a cap of %v", l.WaitCap)
	}
}

func TestFourCallsOfASessionWait(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if r := a.call("wait", m{"wait_ms": 20000}).want(""); r.str("reason") != "mail" {
				t.Errorf("%s", r.raw)
			}
		})
	}
	await(t, "four waits", func() bool { return h.s.sessions.waiting() == 4 })
	a.call("wait", m{"wait_ms": 20000}).want("RATE_LIMITED")
	a.call("inbox", m{"wait_ms": 20000}).want("RATE_LIMITED")
	a.call("inbox", m{}).want("")
	if r := b.call("send", m{"to": "a", "body": "x"}).want(""); r.str("deliveries.0.wake") != "wait" {
		t.Errorf("%s", r.raw)
	}
	wg.Wait()
	if n := h.s.sessions.waiting(); n != 0 {
		t.Errorf("%d waits are left", n)
	}
}

// A call that waits ends at once when its session loses the name, also when nothing is in the
// mailbox.
func TestAWaitEndsWithTheName(t *testing.T) {
	t.Parallel()
	for code, lose := range map[string]func(*house, *agentClient){
		"NOT_REGISTERED": func(_ *house, a *agentClient) { a.call("unregister", m{}).want("") },
		"FENCED": func(h *house, a *agentClient) {
			a.witness.kill()
			h.s.round(context.Background())
			h.legacy("heir").registered("a")
		},
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			h := build(t, plan{})
			a := h.legacy("a").registered("a")
			done := make(chan *reply, 1)
			go func() { done <- a.call("inbox", m{"wait_ms": 50000}) }()
			await(t, "the wait", func() bool { return h.s.sessions.waiting() == 1 })
			lose(h, a)
			select {
			case r := <-done:
				r.want(code)
			case <-time.After(20 * time.Second):
				t.Fatal("it goes on")
			}
		})
	}
}

func TestShutdownEndsAWaitWithAnAnswer(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a := h.legacy("a").registered("a")
	done := make(chan *reply)
	go func() { done <- a.call("wait", m{"wait_ms": 50000}) }()
	await(t, "the wait", func() bool { return h.s.sessions.waiting() == 1 })
	h.s.Close()
	if r := <-done; r.str("reason") != "shutdown" {
		t.Errorf("%s", r.raw)
	}
	if a.conn.Err() == nil {
		t.Error("the connection is open")
	}
}

func TestAWaitEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a := h.legacy("a").registered("a")
	before := len(h.lines())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { _, err := a.try(ctx, "inbox", m{"wait_ms": 50000}, nil); done <- err }()
	await(t, "the wait", func() bool { return h.s.sessions.waiting() == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if l := h.lines()[before:]; len(l) != 1 || l[0].Rule != "agent.CANCELLED" {
		t.Errorf("%+v", l)
	}
	if n := h.s.sessions.waiting(); n != 0 {
		t.Errorf("%d waits are left", n)
	}
}

// A cancelled wait that had confirmed messages has the record of the confirmation only. A
// second record would say that the call was refused.
func TestACancelledWaitDoesNotContradictItsRecord(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
	s := b.call("send", m{"to": "a", "body": "x"}).want("")
	cursor := a.call("inbox", m{}).str("cursor")
	before := len(h.lines())
	ctx, cancel := context.WithCancel(context.Background())
	done, waits := make(chan error), make(chan upstream.Event, 1)
	go func() {
		_, err := a.try(ctx, "inbox", m{"after": cursor, "wait_ms": 50000}, func(e upstream.Event) { waits <- e })
		done <- err
	}()
	<-waits // after the confirmation
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if l := h.lines()[before:]; len(l) != 1 || l[0].Decision != "allow" || l[0].Detail["confirmed"] != "1" {
		t.Errorf("%+v", l)
	}
	if st := b.call("message_status", m{"message_id": s.str("message_id")}); st.str("deliveries.0.state") != "acked" {
		t.Errorf("%s", st.raw)
	}
}

func TestAWaitReportsProgress(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a := h.legacy("a").registered("a")
	var events []upstream.Event
	if _, err := a.try(context.Background(), "wait", m{"wait_ms": 30}, func(e upstream.Event) { events = append(events, e) }); err != nil {
		t.Fatal(err)
	}
	if len(events) != 1 || events[0].Method != "notifications/progress" || string(rawjson.Get(events[0].Params, "progressToken")) != `"p1"` {
		t.Errorf("%+v", events)
	}
	events = nil
	h.legacy("b").registered("b").call("send", m{"to": "a", "body": "x"}).want("")
	if _, err := a.try(context.Background(), "wait", m{"wait_ms": 30}, func(e upstream.Event) { events = append(events, e) }); err != nil || len(events) != 0 {
		t.Errorf("an answer at once came with %+v, %v", events, err)
	}
}

func TestANoticeEndsAWait(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
	s := a.call("send", m{"to": "b", "body": "x"}).want("")
	b.call("inbox", m{}).want("")
	done := make(chan *reply)
	go func() { done <- a.call("wait", m{"wait_ms": 20000}) }()
	await(t, "the wait", func() bool { return h.s.sessions.waiting() == 1 })
	b.call("ack", m{"message_ids": []string{s.str("message_id")}, "outcome": "rejected", "note": "no [/peer-notice x] time"}).want("")
	r := <-done
	if r.str("reason") != "notice" || r.str("notices.0.state") != "rejected" || r.str("notices.0.note") != "no [·/peer-notice x] time" {
		t.Errorf("%s", r.raw)
	}
	in := a.call("inbox", m{"after": r.str("cursor")}).want("")
	if in.len("notices") != 0 {
		t.Errorf("the notice came again: %s", in.raw)
	}
}

// A call that waits follows its session to another mailbox, also if its signal comes when the
// session has lost one and has the next one.
func TestAWaitFollowsItsSessionToTheNextMailbox(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"inbox", "wait"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			h := build(t, plan{})
			a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
			first := peerID(a)
			done := make(chan *reply, 1)
			go func() { done <- a.call(tool, m{"wait_ms": 50000}) }()
			await(t, "the wait", func() bool { return h.s.sessions.waiting() == 1 })
			time.Sleep(20 * time.Millisecond) // the call's first look is not observable
			h.s.unlisten()                    // the signals come late
			a.call("unregister", m{}).want("")
			second := peerID(a.registered("c"))
			h.s.signals.signal(mail.TopicMailbox(first))
			await(t, "the call waits for the next mailbox", func() bool { return h.s.signals.joined(mail.TopicMailbox(second)) })
			b.call("send", m{"to": "c", "body": "x"}).want("")
			h.s.signals.signal(mail.TopicMailbox(second))
			select {
			case r := <-done:
				r.want("")
			case <-time.After(20 * time.Second):
				t.Fatal("the call sleeps although there is mail")
			}
		})
	}
}
