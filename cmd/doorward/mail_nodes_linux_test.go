package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/overload"
)

// mailPoll is the interval at which a daemon polls the database. A change that arrives
// sooner in every round was notified.
const mailPoll = 5 * time.Second

// allies are two daemons on one database whose users may write to each other.
func allies(t *testing.T, dsn string) (east, west *mailDaemon) {
	t.Helper()
	ally := func(name, other string) *mailDaemon {
		d := startMail(t, name, "policy: allies.cedar\n"+mailConfig(name, dsn, ""), "allies.cedar", fmt.Sprintf(`
@id("allies")
permit (principal, action in [Action::"agent.see", Action::"agent.send", Action::"agent.deliver"], resource)
when { context has args && context.args has to && context.args.to.principal == "%s/uid:%d" };
`, other, os.Getuid()))
		return d
	}
	return ally("east", "west"), ally("west", "east")
}

// wake sends while the other client waits, and returns how long that one waited after the
// send. The message is confirmed.
func wake(t *testing.T, from, to *mailClient, name string) time.Duration {
	t.Helper()
	type answer struct {
		r  *mailReply
		at time.Time
	}
	got := make(chan answer, 1)
	go func() { r := to.call("inbox", obj{"wait_ms": 20_000}); got <- answer{r, time.Now()} }()
	time.Sleep(200 * time.Millisecond) // it waits, or finds the message at once
	body := fmt.Sprintf("%s %d", name, time.Now().UnixNano())
	from.send(name, body)
	sent := time.Now()
	a := <-got
	var b mailBatch
	if a.r.into(t, &b); len(b.Messages) != 1 || b.Messages[0].Body != body {
		t.Fatalf("%s was given %+v", name, b)
	}
	to.must("ack", obj{"message_ids": []string{b.Messages[0].MessageID}})
	return a.at.Sub(sent)
}

// woken checks in each round that the wait does not last until a poll. A busy machine may be
// late itself, in fewer than all rounds.
func woken(t *testing.T, rounds int, from, to *mailClient, name string) {
	t.Helper()
	var late []time.Duration
	for range rounds {
		if took := wake(t, from, to, name); took > mailPoll/2 {
			late = append(late, took)
		}
	}
	if len(late) == rounds || len(late) > 0 && overload.Late() == 0 {
		t.Errorf("%s was woken after %s", name, late)
	}
}

// Two daemons on one PostgreSQL: by default the agents of one do not see those of the
// other. Where policy permits it, they write to each other, and a send on one daemon wakes
// a wait on the other.
func TestMailBetweenTwoDaemons(t *testing.T) {
	t.Parallel()
	dsn := doortest.Postgres(t)
	east, west := allies(t, dsn)
	stranger := startMail(t, "north", mailConfig("north", dsn, ""))
	a, b, c := east.client("unix").mustOpen(), west.client("unix").mustOpen(), stranger.client("unix").mustOpen()
	a.register("planner")
	b.register("tester")
	c.register("outsider")

	// The same user on another machine is another principal.
	c.refused("UNKNOWN_RECIPIENT", "send", obj{"to": "planner", "body": "x"})
	a.refused("UNKNOWN_RECIPIENT", "send", obj{"to": "outsider", "body": "x"})
	c.refused("NAME_OWNED", "register", obj{"name": "planner"})
	a.refused("NAME_OWNED", "register", obj{"name": "tester"})
	if r := c.must("list_peers", obj{}); strings.Contains(string(r.out), "planner") {
		t.Errorf("an outsider sees %s", r.out)
	}
	if r := a.must("list_peers", obj{}); !strings.Contains(string(r.out), `"name":"tester"`) || strings.Contains(string(r.out), "outsider") {
		t.Errorf("an ally sees %s", r.out)
	}

	// Both ways, and the ends of a message.
	woken(t, 6, a, b, "tester")
	woken(t, 6, b, a, "planner")
	var sent mailSent
	a.must("send", obj{"to": "tester", "body": "confirm this"}).into(t, &sent)
	state := make(chan *mailReply, 1)
	go func() { state <- a.call("wait", obj{"mail": false, "message_id": sent.MessageID, "wait_ms": 20_000}) }()
	got := b.inbox(obj{"wait_ms": 20_000})
	if len(got.Messages) != 1 || got.Messages[0].From.Principal != fmt.Sprintf("east/uid:%d", os.Getuid()) || got.Messages[0].From.Name != "planner" {
		t.Fatalf("from another node: %+v", got)
	}
	confirmed := time.Now()
	b.must("ack", obj{"message_ids": []string{sent.MessageID}})
	var w mailWaited
	if (<-state).into(t, &w); w.Reason != "message" || time.Since(confirmed) > mailPoll/2+overload.Late() {
		t.Errorf("the sender heard %+v after %s", w, time.Since(confirmed))
	}

	// A daemon that stops says so: its agents are shown as gone.
	presence := func() string {
		var list struct {
			Peers []struct{ Name, Presence string }
		}
		b.must("list_peers", obj{}).into(t, &list)
		for _, p := range list.Peers {
			if p.Name == "planner" {
				return p.Presence
			}
		}
		return "unknown"
	}
	same(t, "before the stop", presence(), "asleep")
	east.stop()
	same(t, "after the stop", presence(), "gone")
	east.start()
	east.client("unix").mustOpen().takes("planner", 2, 0)

	// The names of a killed daemon stay reserved.
	east.kill()
	b.refused("NAME_OWNED", "register", obj{"name": "planner"})
	b.send("planner", "are you there?")
	east.start()
	back := east.client("unix").mustOpen()
	back.takes("planner", 3, 1)
	same(t, "after the kill", back.queue(nil), []string{"are you there? 1 false"})
	for _, d := range []*mailDaemon{east, west, stranger} {
		d.sound()
	}
}

// agentServer returns what status says of the server agent.
func (d *mailDaemon) agentServer() admin.Server {
	d.t.Helper()
	out, status := d.human("doorward", "status", "--json")
	var s admin.Status
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		d.t.Fatalf("status %d, %v:\n%s", status, err, out)
	}
	for _, v := range s.Servers {
		if v.Name == "agent" {
			return v
		}
	}
	d.t.Fatalf("no server agent in %s", out)
	return admin.Server{}
}

// echoes checks that another server of the daemon answers.
func (d *mailDaemon) echoes() {
	d.t.Helper()
	r := d.client("tcp").post(d.t.Context(), "/mcp/echo", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{},`+meta+`}}`, "tools/call echo", nil)
	if r.status != 200 || r.rpc != 0 || r.failed {
		d.t.Errorf("another server: %s", r)
	}
}

const mailEcho = "mcpServers:\n  echo: {command: fakemcp, args: [both, \"${env:HOME}\"]}\n"

// While PostgreSQL is down each call is refused within 15 s, and may be repeated later.
// When it is up again everything goes on without a restart of the daemons, and a send on
// one daemon wakes a wait on the other.
func TestMailARestartOfPostgreSQL(t *testing.T) {
	t.Parallel()
	server := doortest.PostgresServer(t)
	east, west := allies(t, server.DSN())
	a, b := east.client("unix").mustOpen(), west.client("unix").mustOpen()
	a.register("planner")
	b.register("tester")
	woken(t, 2, a, b, "tester")
	a.send("tester", "before")

	server.Kill(t)
	for _, tool := range []struct {
		name string
		args obj
	}{{"send", obj{"to": "tester", "body": "lost?"}}, {"inbox", obj{}}, {"list_peers", obj{}}, {"register", obj{"name": "planner"}},
		{"wait", obj{"wait_ms": 1000}}, {"send", obj{"to": "tester", "body": "lost?"}}} {
		begin := time.Now()
		r := a.refused("STORE_UNAVAILABLE", tool.name, tool.args)
		var e mailError
		if err := json.Unmarshal(r.out, &e); err != nil || !e.Error.Retryable || e.Error.RetryMS <= 0 {
			t.Errorf("%s: %s", tool.name, r)
		}
		if took := time.Since(begin); took > 15*time.Second+overload.Late() {
			t.Errorf("%s was refused after %s", tool.name, took)
		}
	}
	server.Start(t)
	if !poll(mailSoon, func() bool { return a.call("send", obj{"to": "tester", "body": "after"}).what() == "ok" }) {
		a.must("send", obj{"to": "tester", "body": "after"})
	}
	if !poll(mailSoon, func() bool { return b.call("inbox", obj{"peek": true}).what() == "ok" }) {
		b.must("inbox", obj{"peek": true})
	}
	same(t, "after the restart", b.queue(nil), []string{"before 1 false", "after 1 false"})
	b.drain()
	// After some time both listen again, and no wait lasts until a poll.
	poll(3*mailPoll, func() bool { return wake(t, a, b, "tester") < mailPoll/5 })
	poll(3*mailPoll, func() bool { return wake(t, b, a, "planner") < mailPoll/5 })
	woken(t, 6, a, b, "tester")
	woken(t, 6, b, a, "planner")
	for _, d := range []*mailDaemon{east, west} {
		d.sound()
	}
}

// A daemon that starts while its database is down serves everything else. It reports the
// failure without the password, and has messaging once the database is up.
func TestMailADaemonThatStartsBeforeItsDatabase(t *testing.T) {
	t.Parallel()
	server := doortest.PostgresServer(t)
	server.Kill(t)
	d := startMail(t, "early", mailConfig("early", server.DSN()+" password=canary-of-the-database", "")+mailEcho)
	d.echoes()
	s := d.agentServer()
	if s.Reason == "" || !strings.Contains(s.Reason, "database") {
		t.Errorf("status of the server agent: %+v", s)
	}
	for i := range 3 {
		if r := d.client("unix").call("register", obj{"name": "early"}); r.what() == "ok" || r.what() == "cut" {
			t.Errorf("attempt %d: %s", i, r)
		}
	}
	if out, status := d.human("doorward", "agent", "peers"); status == 0 {
		t.Errorf("peers without a database: %s", out)
	}
	server.Start(t)
	if !poll(mailPoll+mailSoon, func() bool { return d.client("unix").call("register", obj{"name": "early"}).what() == "ok" }) {
		d.client("unix").register("early")
	}
	c := d.client("unix")
	c.send("early", "to myself")
	same(t, "mail", c.queue(nil), []string{"to myself 1 false"})
	if s := d.agentServer(); s.Reason != "" {
		t.Errorf("status of the server agent: %+v", s)
	}
	d.echoes()
	if !strings.Contains(d.stderr(), "messaging and instructions are on") || strings.Contains(d.stderr()+s.Reason, "canary") {
		t.Errorf("the log: %s", d.stderr())
	}
	d.sound()
}
