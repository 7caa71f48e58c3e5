package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// begun waits until that many calls of the daemon's sessions wait for mail.
func (d *mailDaemon) begun(n int) {
	d.t.Helper()
	want := fmt.Sprintf("\ndoorward_agent_waits_open %d\n", n)
	var text string
	if !poll(mailSoon, func() bool { text = d.metrics(); return strings.Contains(text, want) }) {
		d.t.Fatalf("not %d waiting calls:\n%s", n, text)
	}
}

// A wait that is longer than the configured cap is shortened to it and marked as capped;
// other waits are not. A wait above 295 s is refused.
func TestMailAWaitIsCapped(t *testing.T) {
	t.Parallel()
	d := startMail(t, "one", mailConfig("one", "", "  wait_cap: 2s\n"))
	c := d.client("tcp").mustOpen()
	c.register("patient")
	for _, w := range []struct {
		ms     int
		capped bool
		least  time.Duration
	}{{295_000, true, 2 * time.Second}, {2001, true, 2 * time.Second}, {2000, false, 2 * time.Second}, {300, false, 300 * time.Millisecond}, {0, false, 0}} {
		begin := time.Now()
		var out mailWaited
		c.must("wait", obj{"wait_ms": w.ms}).into(t, &out)
		took := time.Since(begin)
		if out.Reason != "timeout" || out.Capped != w.capped || out.WaitedMS < w.least.Milliseconds() || out.WaitedMS > took.Milliseconds()+1 ||
			took < w.least || took > w.least+mailSoon/4 {
			t.Errorf("wait_ms %d: %+v after %s", w.ms, out, took)
		}
	}
	c.refused("INVALID_ARGUMENT", "wait", obj{"wait_ms": 295_001})
	c.refused("INVALID_ARGUMENT", "inbox", obj{"wait_ms": 295_001})
	begin := time.Now()
	var b struct {
		TimedOut bool `json:"timed_out"`
		Cursor   string
	}
	c.must("inbox", obj{"wait_ms": 295_000}).into(t, &b)
	if took := time.Since(begin); !b.TimedOut || b.Cursor == "" || took < 2*time.Second || took > mailSoon/4 {
		t.Errorf("an inbox that waited: %+v after %s", b, took)
	}
	d.sound()
}

// A wait_cap of 296 s is refused, so that every wait is answered before a client gives up.
func TestMailAWaitCapAboveTheLimitIsRefused(t *testing.T) {
	t.Parallel()
	d := startMail(t, "one", mailConfig("one", "", ""))
	d.write("long.yaml", mailConfig("one", "", "  wait_cap: 296s\n"))
	if out, status := d.human("doorward", "check", "--config", d.dir+"/long.yaml"); status != 1 || !strings.Contains(out, "wait_cap") {
		t.Errorf("status %d\n%s", status, out)
	}
}

// A stop of the daemon answers the calls that wait.
func TestMailAStopAnswersWaits(t *testing.T) {
	t.Parallel()
	d := startMail(t, "one", mailConfig("one", "", ""))
	a, b := d.client("tcp").mustOpen(), d.client(d.proxy("b"))
	a.register("a")
	b.register("b")
	type waiter struct {
		c    *mailClient
		tool string
	}
	var all []waiter
	for _, c := range []*mailClient{a, b} {
		all = append(all, waiter{c, "wait"}, waiter{c, "inbox"})
	}
	got := make([]chan *mailReply, len(all))
	for i, w := range all {
		got[i] = make(chan *mailReply, 1)
		go func() { got[i] <- w.c.call(w.tool, obj{"wait_ms": 50_000}) }()
	}
	d.begun(len(all))
	begin := time.Now()
	d.stop()
	for i, w := range all {
		r := <-got[i]
		if r.what() != "ok" {
			t.Errorf("%s: %s", w.tool, r)
			continue
		}
		var out mailWaited
		if r.into(t, &out); w.tool == "wait" && out.Reason != "shutdown" {
			t.Errorf("%s: %+v", w.tool, out)
		}
	}
	if took := time.Since(begin); took > 10*time.Second+late() {
		t.Errorf("the stop took %s", took)
	}
	d.start()
	d.sound()
}

// A session may have four waiting calls and no fifth. A call that is cancelled or answered
// makes room. Other sessions have their own four.
func TestMailFourWaitsOfOneSession(t *testing.T) {
	t.Parallel()
	d := startMail(t, "one", mailConfig("one", "", ""))
	writer, other := d.client("unix").mustOpen(), d.client("unix").mustOpen()
	writer.register("writer")
	other.register("other")
	for name, c := range map[string]*mailClient{"legacy": d.client("unix").mustOpen(), "modern": d.client(d.proxy("modern"))} {
		c.register(name)
		got := make(chan *mailReply, 4)
		var giveUp []func()
		for i := range 4 {
			giveUp = append(giveUp, c.start(got, []string{"wait", "inbox"}[i%2], obj{"wait_ms": 50_000}))
		}
		d.begun(4)
		begin := time.Now()
		c.refused("RATE_LIMITED", "wait", obj{"wait_ms": 50_000})
		c.refused("RATE_LIMITED", "inbox", obj{"wait_ms": 50_000})
		if took := time.Since(begin); took > mailSoon/4 {
			t.Errorf("%s: refused after %s", name, took)
		}
		c.inbox(nil) // one that does not wait
		other.must("wait", obj{"wait_ms": 1})

		// A call that is cancelled gives its place back.
		giveUp[0]()
		if r := <-got; r.what() != "cut" && r.what() != "http 202" {
			t.Errorf("%s: a call that was given up: %s", name, r)
		}
		d.begun(3)
		go func() { got <- c.call("wait", obj{"wait_ms": 50_000}) }()
		d.begun(4)

		// Mail ends all of them: the waits, and the inbox calls, of which one gets it.
		writer.send(name, "wake up")
		for range 4 {
			if r := <-got; r.what() != "ok" {
				t.Errorf("%s: %s", name, r)
			}
		}
		d.begun(0)
	}
	d.sound()
}

// start begins a call whose answer goes to got. giveUp cancels it: by a notification in a
// session, without a session by closing the connection.
func (c *mailClient) start(got chan<- *mailReply, tool string, arguments obj) (giveUp func()) {
	ctx, stop := context.WithCancel(c.t.Context())
	b, err := json.Marshal(arguments)
	if err != nil {
		c.t.Fatal(err)
	}
	id := mailIDs.Add(1)
	more, name := "", ""
	if c.session == "" {
		more, name = ","+meta, "tools/call "+tool
	}
	go func() {
		defer stop()
		got <- c.post(ctx, "/mcp/agent", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s%s}}`, id, tool, structured(tool, string(b)), more), name, nil)
	}()
	if c.session == "" {
		return stop
	}
	return func() {
		c.t.Helper()
		r := c.post(context.Background(), "/mcp/agent", fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id), "", nil)
		if r.err != nil || r.status != http.StatusAccepted {
			c.t.Errorf("giving up: %s", r)
		}
	}
}

// A call that is cancelled or cut off takes no message with it: the next message is given
// to the next call.
func TestMailAWaitThatIsGivenUpTakesNothing(t *testing.T) {
	t.Parallel()
	d := startMail(t, "one", mailConfig("one", "", roomy))
	process := d.proxy("plain")
	writer, session, plain := d.client("unix").mustOpen(), d.client("unix").mustOpen(), d.client(process)
	writer.register("writer")
	session.register("session")
	plain.register("plain")
	ways := map[string]struct {
		c    *mailClient
		name string
		how  func(got chan *mailReply) func()
	}{
		"a session that gives up": {session, "session", func(got chan *mailReply) func() { return session.start(got, "inbox", obj{"wait_ms": 50_000}) }},
		"a session that is cut off": {session, "session", func(got chan *mailReply) func() {
			ctx, stop := context.WithCancel(t.Context())
			// Its call goes on, and may find that the next one was faster: then it ends by itself.
			go func() { got <- session.try(ctx, "inbox", obj{"wait_ms": 15_000}) }()
			return stop
		}},
		"a process that hangs up": {plain, "plain", func(got chan *mailReply) func() {
			stop := plain.start(got, "inbox", obj{"wait_ms": 50_000})
			return func() { stop(); process.hungUp(t) }
		}},
	}
	for way, w := range ways {
		for i := range 10 {
			got := make(chan *mailReply, 1)
			giveUp := w.how(got)
			d.begun(1)
			giveUp()
			<-got
			body := fmt.Sprintf("%s %d", way, i)
			writer.send(w.name, body) // while the call ends, or goes on without a client
			b := w.c.inbox(obj{"wait_ms": 20_000})
			if len(b.Messages) != 1 || b.Messages[0].Body != body {
				t.Fatalf("%+v, want %q", b, body)
			}
			w.c.must("ack", obj{"message_ids": []string{b.Messages[0].MessageID}})
			d.begun(0)
		}
	}
	d.sound()
}

// metrics is what /metrics shows.
func (d *mailDaemon) metrics() string {
	d.t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://localhost/metrics", nil)
	if err != nil {
		d.t.Fatal(err)
	}
	resp, err := d.client("unix").http.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		d.t.Fatalf("metrics: %s, %v\n%s", resp.Status, err, b)
	}
	return string(b)
}
