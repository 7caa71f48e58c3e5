package relay

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/relay/seal"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/test/policytest"
)

// TestAParkedCallNeedsNoPlace: an approved call whose client comes back with answers goes on while
// as many calls of its caller wait as may.
func TestAParkedCallNeedsNoPlace(t *testing.T) {
	t.Parallel()
	s := asker(t, stdio)
	s.setList("tools/list", `{"tools":[{"name":"a:1:1"},{"name":"waits"}]}`)
	d := &counter{t: t}
	h := build(t, []Server{s.server(pinnedBy(shelf(t), false))}, withCounter(d, "quiz", "", time.Hour))
	m := h.modern("/mcp/quiz", "uid:1000")
	m.caps = everyQuestion
	params, first := object("tools/call", "/mcp/quiz", "a:1:1"), make(chan string, 1)
	go func() { first <- m.call("tools/call", `{`+params+`}`) }()
	d.settle(approval.Verdict{Approve: true})
	asked := <-first
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() { h.modern("/mcp/quiz", "uid:1000").call("tools/call", `{"name":"waits"}`) })
	}
	eventually(t, "as many wait as may", func() bool { q := d.queue.Pending(); return len(q) == 1 && q[0].Waiting == 100 })
	equal(t, "the parked call", field(m.call("tools/call", back(params, asked, responses(asked, 7))), "result", "said"), `"a: 7"`)
	d.settle(approval.Verdict{})
	all.Wait()
}

// TestTheStateOfThePageLastsAsLongAsAQuestion: the state of the operator's page is recognised
// for as long as a call can wait for the operator, and no other state is.
func TestTheStateOfThePageLastsAsLongAsAQuestion(t *testing.T) {
	t.Parallel()
	sealer, err := seal.New(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	who, target := principal.New("uid:1000"), aimed(t, "s", "tools/call", `{"name":"t"}`).Target
	page, err := sealer.SealPage(who, target)
	if err != nil {
		t.Fatal(err)
	}
	state, err := sealer.SealState([]byte(`1`), who, target)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for after, want := range map[time.Duration]bool{0: true, time.Hour + time.Minute: true, 25 * time.Hour: true, 8 * 24 * time.Hour: false} {
		sealer.Now = func() time.Time { return began.Add(after) }
		equal(t, fmt.Sprint("the page after ", after), fmt.Sprint(sealer.IsPage(page, who, target)), fmt.Sprint(want))
		_, err := sealer.OpenState(state, who, target)
		equal(t, fmt.Sprint("a state after ", after), fmt.Sprint(err == nil), fmt.Sprint(after < time.Hour))
	}
}

// TestAnApprovalIsForOneFormOfTheServer: a call that waits while the settings of its server change is
// refused, and the same call is a new question: what was approved for one program does not run in
// another.
func TestAnApprovalIsForOneFormOfTheServer(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"while it waits", "before it comes back", "after the approval"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			was, is := web(t, "s", "legacy"), web(t, "s", "legacy")
			for _, s := range []*script{was, is} {
				s.serve = func(q *query) { q.result(`{"content":[]}`) }
			}
			d := &counter{t: t}
			wait := time.Millisecond
			if when == "while it waits" {
				wait = time.Hour
			}
			h := build(t, []Server{was.server()}, withCounter(d, "s", "", wait))
			c := h.legacy("/mcp/s", "uid:1000", `{}`)
			answer := make(chan string, 2)
			var calls sync.WaitGroup
			calls.Go(func() { answer <- c.tool("t", "") })
			eventually(t, "it waits", func() bool { return len(d.queue.Pending()) == 1 })
			if when == "after the approval" {
				<-answer
				d.settle(approval.Verdict{Approve: true})
			}
			h.relay.SetServers([]Server{is.server()})
			if when == "while it waits" { // in the other cases the same call comes before the review
				d.queue.Review()
				contains(t, "the call that waited", <-answer, `"error"`)
				if n := len(d.queue.Pending()); n != 0 {
					t.Errorf("%d questions about the former server wait", n)
				}
			}
			if again := func() { answer <- c.tool("t", "") }; when == "while it waits" {
				calls.Go(again)
			} else {
				again()
			}
			eventually(t, "the same call waits again", func() bool { q := d.queue.Pending(); return len(q) == 1 && q[0].N == 2 })
			equal(t, "calls that reached a server", fmt.Sprint(len(was.got("tools/call")), len(is.got("tools/call"))), "0 0")
			d.queue.Close()
			calls.Wait()
		})
	}
}

// TestACallThatWaitsIsDecidedByTheNewPolicy: it runs or is denied, as that says.
func TestACallThatWaitsIsDecidedByTheNewPolicy(t *testing.T) {
	t.Parallel()
	for want, rules := range map[string]policy.ServerRules{
		`"error"`:   {Tools: policy.List{Deny: []string{"t"}}},
		`"content"`: {Tools: everyTool},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			s := web(t, "s", "legacy")
			s.serve = func(q *query) { q.result(`{"content":[]}`) }
			d := &counter{t: t}
			h := build(t, []Server{s.server()}, withCounter(d, "s", "", time.Hour))
			c := h.legacy("/mcp/s", "uid:1000", `{}`)
			answer := make(chan string, 1)
			go func() { answer <- c.tool("t", "") }()
			eventually(t, "it waits", func() bool { return len(d.queue.Pending()) == 1 })
			h.gate.SetPolicy(policytest.New(t, 1000, map[string]policy.ServerRules{"s": rules}))
			d.queue.Review()
			contains(t, "the call", <-answer, want)
			if len(d.queue.Pending()) != 0 {
				t.Error("it still waits")
			}
		})
	}
}
