package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// token makes a bearer token, which the daemon knows when token returns.
func (d *mailDaemon) token(name string) string {
	d.t.Helper()
	out, status := d.human("doorward", "token", "new", name)
	for line := range strings.Lines(out) {
		if token := strings.TrimSpace(line); strings.HasPrefix(token, "dw_") {
			if poll(mailSoon, func() bool { _, err := d.client("tcp").with(token).open(); return err == nil }) {
				return token
			}
		}
	}
	d.t.Fatalf("token new: status %d\n%s", status, out)
	return ""
}

// inUse expects the refusal of a name whose owner lives, with a time for the next attempt.
func (c *mailClient) inUse(name string) {
	c.t.Helper()
	var e mailError
	r := c.refused("NAME_IN_USE", "register", obj{"name": name})
	if err := json.Unmarshal(r.out, &e); err != nil || e.Error.RetryMS <= 0 {
		c.t.Errorf("NAME_IN_USE without a time to try again: %s", r.out)
	}
}

// takes takes a name over, with what waits for it.
func (c *mailClient) takes(name string, epoch int64, inherited int) mailRegistered {
	c.t.Helper()
	r := c.register(name)
	if r.Created || r.Takeover == nil || r.Epoch != epoch || r.Takeover.PrevEpoch != epoch-1 || r.Takeover.Inherited != inherited || r.Pending != inherited {
		c.t.Fatalf("%s is no takeover of %d messages as epoch %d: %+v %+v", name, inherited, epoch, r, r.Takeover)
	}
	return r
}

// queue is what a mailbox gives: the text and the attempt of each message.
func (c *mailClient) queue(arguments obj) (list []string) {
	c.t.Helper()
	for _, m := range c.inbox(arguments).Messages {
		list = append(list, fmt.Sprintf("%s %d %v", m.Body, m.Attempt, m.Redelivered))
	}
	return list
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Fatalf("%s: %s, want %s", what, g, w)
	}
}

// A name goes to the next session of its principal when its own session is over, with its
// mail. Messages that were given and not confirmed are given again, and marked. While that
// session lives it keeps the name, and other principals never get it.
func TestMailTakeoverOfASession(t *testing.T) {
	t.Parallel()
	for engine, postgres := range mailEngines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := startMail(t, "one", mailConfig("one", postgres(t), ""))
			writer, owner, next := d.client("tcp").mustOpen(), d.client("tcp").mustOpen(), d.client("tcp").mustOpen()
			other := d.client("tcp").with(d.token("other")).mustOpen()
			writer.register("writer")
			first := owner.register("target")
			for _, body := range []string{"one", "two", "three"} {
				writer.send("target", body)
			}
			same(t, "before", owner.queue(obj{"max": 2}), []string{"one 1 false", "two 1 false"})

			// The owner lives: no other session gets the name, and it may register again.
			next.inUse("target")
			other.refused("NAME_OWNED", "register", obj{"name": "target"})
			d.client("unix").refused("NAME_OWNED", "register", obj{"name": "target"}) // a uid on the socket is another principal than one over loopback
			if again := owner.register("target"); again.PeerID != first.PeerID || again.Epoch != 1 || again.Takeover != nil {
				t.Errorf("the same session again: %+v", again)
			}

			// It has ended.
			if err := owner.end(); err != nil {
				t.Fatal(err)
			}
			other.refused("NAME_OWNED", "register", obj{"name": "target"})
			if got := next.takes("target", 2, 3); got.PeerID != first.PeerID {
				t.Errorf("another peer: %+v", got)
			}
			if r := owner.call("send", obj{"to": "writer", "body": "still me?"}); r.status != http.StatusNotFound {
				t.Errorf("an ended session: %s", r)
			}
			other.refused("NAME_OWNED", "register", obj{"name": "target"})
			same(t, "after", next.queue(nil), []string{"one 2 true", "two 2 true", "three 1 false"})

			d.sound()
		})
	}
}

// A cursor confirms nothing for the session that took the name of its session over.
func TestMailACursorOfAnEarlierSessionIsInvalid(t *testing.T) {
	t.Parallel()
	d := startMail(t, "one", mailConfig("one", "", ""))
	writer, owner, next := d.client("tcp").mustOpen(), d.client("tcp").mustOpen(), d.client("tcp").mustOpen()
	writer.register("writer")
	owner.register("target")
	writer.send("target", "one")
	cursor := owner.inbox(nil).Cursor
	if err := owner.end(); err != nil {
		t.Fatal(err)
	}
	next.takes("target", 2, 1)
	next.refused("CURSOR_INVALID", "inbox", obj{"after": cursor})
	writer.refused("CURSOR_INVALID", "inbox", obj{"after": cursor})
	same(t, "after", next.queue(nil), []string{"one 2 true"})
	d.sound()
}

// shim is `doorward connect agent` as a client starts it.
type shim struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func (d *mailDaemon) shim(flags ...string) *shim {
	d.t.Helper()
	return d.shimOf("doorward", append([]string{"connect", "agent"}, flags...)...)
}

// shimOf starts a command that leads to a shim.
func (d *mailDaemon) shimOf(name string, args ...string) *shim {
	d.t.Helper()
	s := &shim{t: d.t, cmd: exec.Command(name, args...)}
	s.cmd.Dir, s.cmd.Env = d.dir, d.env
	in, err1 := s.cmd.StdinPipe()
	out, err2 := s.cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		d.t.Fatal(err1, err2)
	}
	s.in, s.out = in, bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(s.kill)
	return s
}

func (s *shim) kill() {
	_ = s.cmd.Process.Kill() // it may be gone
	_ = s.cmd.Wait()
}

// call calls a tool and waits for its answer.
func (s *shim) call(tool string, arguments obj) *mailReply {
	s.t.Helper()
	args, err := json.Marshal(arguments)
	if err == nil {
		_, err = fmt.Fprintf(s.in, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,%s}}`+"\n", tool, structured(tool, string(args)), meta)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		s.t.Fatalf("the shim ended: %v", err)
	}
	r := &mailReply{status: http.StatusOK, header: http.Header{}, raw: line}
	r.parse()
	return r
}

// A process that is killed loses its name at once: a program that connects itself, one in a
// session, and the shim of a client.
func TestMailAKilledProcessGivesItsNameAwayAtOnce(t *testing.T) {
	t.Parallel()
	d := startMail(t, "one", mailConfig("one", "", ""))
	writer := d.client("unix").mustOpen()
	writer.register("writer")
	p1, p2, heir := d.proxy("p1"), d.proxy("p2"), d.client(d.proxy("heir"))
	plain, session := d.client(p1), d.client(p2).mustOpen()
	for name, c := range map[string]*mailClient{"plain": plain, "session": session} {
		c.register(name)
		writer.send(name, "hello "+name)
		same(t, name, c.queue(nil), []string{"hello " + name + " 1 false"})
		heir.inUse(name)
	}
	p1.kill()
	heir.takes("plain", 2, 1)
	same(t, "plain", heir.queue(nil), []string{"hello plain 2 true"})
	p2.kill()
	second := d.client("unix").mustOpen()
	second.takes("session", 2, 1)
	same(t, "session", second.queue(nil), []string{"hello session 2 true"})

	one, two := d.shim(), d.shim()
	var first, then mailRegistered
	one.call("register", obj{"name": "shim"}).into(t, &first)
	if r := two.call("register", obj{"name": "shim"}); r.what() != "NAME_IN_USE" {
		t.Fatalf("a second shim: %s", r)
	}
	one.kill()
	two.call("register", obj{"name": "shim"}).into(t, &then)
	if then.Takeover == nil || then.PeerID != first.PeerID || then.Epoch != 2 {
		t.Errorf("after the kill of a shim: %+v", then)
	}
	d.sound()
}

// stream holds a stream open and reads it to its end.
func (c *mailClient) stream(method, path, body, name string) {
	c.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	if method == http.MethodPost {
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Content-Type", "application/json")
	}
	if name != "" {
		req.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		req.Header.Set("Mcp-Method", name)
	}
	c.head(req)
	h := *c.http
	h.Timeout = 0
	resp, err := h.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		c.t.Fatalf("no stream: %s", resp.Status)
	}
	var end sync.WaitGroup
	end.Go(func() {
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body) // it is cut by the end of the test
	})
	c.t.Cleanup(func() { stop(); end.Wait() })
}

// streams are the ways to have one open, by era.
var streams = map[string]func(*mailClient) *mailClient{
	"a GET stream": func(c *mailClient) *mailClient {
		s := c.mustOpen()
		s.stream(http.MethodGet, "/mcp/agent", "", "")
		return s
	},
	"a listen": func(c *mailClient) *mailClient {
		c.stream(http.MethodPost, "/mcp/agent", `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{`+meta+`,"notifications":{"resourceSubscriptions":["agent://inbox"]}}}`, "subscriptions/listen")
		return c
	},
}

// A stopped process still has its streams open and reads nothing of them. Its session lasts
// until its time is over, then its name can be taken over. When the process continues, its
// calls are refused as FENCED.
func TestMailAStoppedProcessLosesItsNameAfterItsTime(t *testing.T) {
	t.Parallel()
	const session = 5 * time.Second
	for era, open := range streams {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			d := startMail(t, "one", mailConfig("one", "", "  session: 5s\n"))
			p, heir := d.proxy("sleeper"), d.client("unix").mustOpen()
			sleeper := open(d.client(p))
			begin := time.Now()
			sleeper.register("sleeper")
			if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			heir.inUse("sleeper")
			taken := poll(session+5*time.Second+late(), func() bool { return heir.call("register", obj{"name": "sleeper"}).what() == "ok" })
			if after := time.Since(begin); !taken || after < session {
				t.Fatalf("taken over %v, after %s", taken, after)
			}
			if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			sleeper.refused("FENCED", "inbox", obj{})
			sleeper.refused("FENCED", "send", obj{"to": "sleeper", "body": "it is I"})
			sleeper.inUse("sleeper")
			d.sound()
		})
	}
}

// A stream that its process reads keeps the session alive without any request. Keep-alives
// that are written to a stopped process do not, although the kernel takes them.
func TestMailAStreamThatIsReadKeepsTheName(t *testing.T) {
	t.Parallel()
	const session = 20 * time.Second // more than the time between two keep-alives
	d := startMail(t, "one", mailConfig("one", "", "  session: 20s\n"))
	silent := d.client("tcp").mustOpen()
	silent.register("silent")
	sleepers := make(map[string]*proxy)
	for _, kind := range []string{"reads", "sleeps"} {
		for era, open := range streams {
			name := kind + strings.ReplaceAll(strings.ToLower(era), " ", "-")
			p := d.proxy(name)
			open(d.client(p)).register(name)
			if kind == "sleeps" {
				sleepers[name] = p
			}
		}
	}
	time.Sleep(4 * time.Second) // what was read until now has been noticed
	heirs := make(map[string]*mailClient)
	for name, p := range sleepers {
		if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		heirs[name] = d.client("unix").mustOpen()
		heirs[name].inUse(name)
	}
	// A lease is extended when a third of it has passed.
	end := time.Now().Add(session + session/3 + time.Second + late())
	for name, heir := range heirs {
		if !poll(time.Until(end), func() bool { return heir.call("register", obj{"name": name}).what() == "ok" }) {
			t.Errorf("%s still has its name", name)
		}
	}
	heir := d.client("unix").mustOpen()
	heir.inUse("readsa-get-stream")
	heir.inUse("readsa-listen")
	d.client("tcp").mustOpen().takes("silent", 2, 0) // it has no stream, and has had its time
	d.sound()
}

// After kill -9 of the daemon a name is free for its principal at once, with its mail, and
// not for others. A process that continues needs no second registration, nor does a session
// over HTTP that is used again.
func TestMailNamesAfterAKillOfTheDaemon(t *testing.T) {
	t.Parallel()
	for engine, postgres := range mailEngines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := startMail(t, "one", mailConfig("one", postgres(t), ""))
			other := d.token("other")
			owner, writer, stays := d.client("tcp").mustOpen(), d.client("tcp").mustOpen(), d.client(d.proxy("stays"))
			goesOn := d.client("tcp").mustOpen()
			goesOn.register("goes-on")
			owner.register("target")
			writer.register("writer")
			stays.register("stays")
			writer.send("target", "one")
			writer.send("target", "two")
			stays.send("stays", "to myself")
			same(t, "before", owner.queue(obj{"max": 1}), []string{"one 1 false"})
			same(t, "before", stays.queue(nil), []string{"to myself 1 false"})
			d.kill()
			d.start()
			goesOn.send("goes-on", "over HTTP")
			same(t, "in its session", goesOn.queue(nil), []string{"over HTTP 1 false"})
			d.client("tcp").mustOpen().inUse("goes-on")
			d.client("tcp").with(other).mustOpen().refused("NAME_OWNED", "register", obj{"name": "target"})
			next := d.client("tcp").mustOpen()
			next.takes("target", 2, 2)
			same(t, "after", next.queue(nil), []string{"one 2 true", "two 1 false"})
			stays.send("stays", "still me")
			d.client("unix").mustOpen().inUse("stays") // it has shown itself
			b := stays.inbox(nil)
			if len(b.Messages) != 1 && len(b.Messages) != 2 { // the first is leased, for the session is the same
				t.Errorf("after the kill: %+v", b)
			}
			d.sound()
		})
	}
}
