//go:build interop

package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
	"github.com/doorward/doorward/test/overload"
)

// patience is longer than any wait that these tests allow: a longer call hangs.
const patience = time.Minute

// answerer is a client that calls the tool ask, which asks two questions in turn.
type answerer struct {
	t      *testing.T
	modern bool
	send   func(line string)
	got    chan reply
	kill   func()
	calls  int
	seen   int                                      // questions
	given  int                                      // answers after which the call went on
	params struct{ key, state, id json.RawMessage } // of the open question
}

// turn is the next step of a call: a question, or its end.
type turn struct{ question, result, failure string }

const (
	asksInit = `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"raw","version":"1"}}`
	asksMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"}}`
)

// newAnswerer connects a client over HTTP, or through a process of `doorward connect`.
func newAnswerer(t *testing.T, d *doortest.Daemon, transport string, modern bool) *answerer {
	t.Helper()
	a := &answerer{t: t, modern: modern, got: make(chan reply, 64)}
	if transport == "connect" {
		a.overConnect(d)
	} else {
		a.overHTTP(d)
	}
	if modern {
		return a
	}
	a.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":` + asksInit + `}`)
	if r := a.next(); r.Result == nil {
		t.Fatalf("initialize: %s", r.Error)
	}
	a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return a
}

func (a *answerer) overConnect(d *doortest.Daemon) {
	a.t.Helper()
	cmd := d.Command("connect", "recorder")
	in, err := cmd.StdinPipe()
	must(a.t, err)
	out, err := cmd.StdoutPipe()
	must(a.t, err)
	must(a.t, cmd.Start())
	a.kill = func() { _ = cmd.Process.Kill() }
	a.send = func(line string) { _, _ = fmt.Fprintln(in, line) }
	over := make(chan struct{})
	go func() {
		defer close(over)
		for dec := json.NewDecoder(out); ; {
			var r reply
			if dec.Decode(&r) != nil {
				return
			}
			a.got <- r
		}
	}()
	a.t.Cleanup(func() {
		in.Close()
		hurry := time.AfterFunc(5*time.Second, a.kill)
		<-over
		_ = cmd.Wait()
		hurry.Stop()
	})
}

func (a *answerer) overHTTP(d *doortest.Daemon) {
	transport := &http.Transport{DisableKeepAlives: true}
	client := &http.Client{Transport: transport}
	ctx, cancel := context.WithCancel(a.t.Context())
	a.kill = cancel
	session := ""
	a.send = func(line string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.MCP("recorder"), strings.NewReader(line))
		must(a.t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if a.modern {
			req.Header.Set("MCP-Protocol-Version", "2026-07-28")
			req.Header.Set("Mcp-Method", "tools/call")
			req.Header.Set("Mcp-Name", "ask")
		}
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
			req.Header.Set("MCP-Protocol-Version", "2025-11-25")
		}
		resp, err := client.Do(req)
		if err != nil {
			return // the daemon is gone: next fails the test
		}
		if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
			session = id
		}
		go a.take(resp)
	}
}

// take reads every message of one HTTP answer.
func (a *answerer) take(resp *http.Response) {
	defer resp.Body.Close()
	take := func(text []byte) {
		var r reply
		if json.Unmarshal(text, &r) == nil {
			a.got <- r
		}
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		var b bytes.Buffer
		_, _ = b.ReadFrom(resp.Body)
		take(b.Bytes())
		return
	}
	for events := newEvents(resp.Body); ; {
		e, err := events.next()
		if err != nil {
			return
		}
		take(e.data)
	}
}

// next is the next message that is a question or an answer.
func (a *answerer) next() reply {
	a.t.Helper()
	for limit := time.After(patience); ; {
		select {
		case r := <-a.got:
			if r.Method == "" || r.Method == "elicitation/create" {
				return r
			}
		case <-limit:
			a.t.Fatal("the call hangs")
		}
	}
}

// call calls the tool.
func (a *answerer) call() turn {
	a.t.Helper()
	return a.request("")
}

func (a *answerer) request(more string) turn {
	a.t.Helper()
	a.calls++
	meta := ""
	if a.modern {
		meta = "," + asksMeta
	}
	a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"call-%d","method":"tools/call","params":{"name":"ask","arguments":{}%s%s}}`, a.calls, more, meta))
	return a.turn()
}

// answer answers the open question.
func (a *answerer) answer(value string) turn {
	a.t.Helper()
	next := a.respond(value)
	if next.failure == "" {
		a.given++
	}
	return next
}

func (a *answerer) respond(value string) turn {
	a.t.Helper()
	answer := `{"action":"accept","content":{"value":"` + value + `"}}`
	if !a.modern {
		a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, a.params.id, answer))
		return a.turn()
	}
	more := fmt.Sprintf(`,"inputResponses":{%s:%s}`, a.params.key, answer)
	if a.params.state != nil {
		more += `,"requestState":` + string(a.params.state)
	}
	return a.request(more)
}

// turn waits for the next question or the end of the call.
func (a *answerer) turn() turn {
	a.t.Helper()
	r := a.next()
	if r.Method != "" {
		a.params.id = r.ID
		a.seen++
		return turn{question: message(a.t, r.Params)}
	}
	if r.Result == nil {
		return turn{failure: string(r.Error)}
	}
	var result struct {
		ResultType    string
		RequestState  json.RawMessage
		InputRequests map[string]struct{ Params json.RawMessage }
		IsError       bool
		Content       []struct{ Text string }
	}
	must(a.t, json.Unmarshal(r.Result, &result))
	if result.ResultType == "input_required" {
		for key, q := range result.InputRequests {
			a.seen++
			a.params.key, a.params.state = json.RawMessage(strconv.Quote(key)), result.RequestState
			return turn{question: message(a.t, q.Params)}
		}
	}
	if len(result.Content) == 0 || result.IsError {
		return turn{failure: string(r.Result)}
	}
	return turn{result: result.Content[0].Text}
}

func message(t *testing.T, params json.RawMessage) string {
	t.Helper()
	var p struct{ Message string }
	must(t, json.Unmarshal(params, &p))
	return p.Message
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestKilledInRounds: no call hangs when the server, the client or the daemon is killed
// while the first or the second question of the call is open. A call of a modern server,
// which keeps its state in the message, continues in the next process. Any other call
// ends with an error, and the next call works. The audit log has each question that was
// asked, and no answer after which the call did not go on.
func TestKilledInRounds(t *testing.T) {
	for _, transport := range words("http connect") {
		for _, modern := range []bool{false, true} {
			for _, server := range words("legacy modern") {
				for _, round := range []int{1, 2} {
					for _, victim := range words("server client daemon") {
						k := killing{transport, modern, server, round, victim}
						t.Run(k.String(), func(t *testing.T) { t.Parallel(); k.run(t) })
					}
				}
			}
		}
	}
}

type killing struct {
	transport string
	modern    bool
	server    string
	round     int
	victim    string
}

func (k killing) String() string {
	client := "legacy"
	if k.modern {
		client = "modern"
	}
	return fmt.Sprintf("%s/%s client/%s server/round %d/%s", k.transport, client, k.server, k.round, k.victim)
}

// run is one case: the call up to the open question, the kill, and what follows.
func (k killing) run(t *testing.T) {
	servers := house{servers: map[string]server{"recorder": stdio(fixture.Recorder(t, k.server), nil)}}
	yaml := strings.Replace(servers.yaml(t), "127.0.0.1:0", fmt.Sprintf("127.0.0.1:%d", doortest.FreePort(t)), 1)
	d := doortest.Start(t, yaml, doortest.Options{})
	a := newAnswerer(t, d, k.transport, k.modern)
	at := a.call()
	if k.round == 2 && at.question == "[recorder] first?" {
		at = a.answer("1")
	}
	if at.question != map[int]string{1: "[recorder] first?", 2: "[recorder] second?"}[k.round] {
		t.Fatalf("before the kill: %+v", at)
	}
	var other *answerer
	switch k.victim {
	case "server":
		killServers(t, d)
		if k.server == "legacy" {
			noticed(t, d)
		} else {
			d.WaitStderr("child ended", patience)
		}
		k.afterServer(a)
	case "client":
		other = newAnswerer(t, d, k.transport, k.modern)
		a.kill()
		if k.unheard() > 0 {
			asksOn(t, d, a.seen)
		}
	case "daemon":
		d.Kill9()
		d = doortest.Start(t, yaml, doortest.Options{Dir: d.Dir})
		k.afterDaemon(a)
	}
	if other == nil {
		other = newAnswerer(t, d, k.transport, k.modern)
	}
	whole(t, other)
	k.recorded(t, d, a.seen+other.seen, a.given+other.given)
}

// afterServer checks that a modern server's call continues in its next process, and that
// a legacy server's call fails.
func (k killing) afterServer(a *answerer) {
	a.t.Helper()
	end := a.answer(strconv.Itoa(k.round))
	if k.round == 1 && end.question == "[recorder] second?" {
		end = a.answer("2")
	}
	if goesOn := end.result == "first=1 second=2"; goesOn != (k.server == "modern") || !goesOn && end.failure == "" {
		a.t.Errorf("after the server was killed: %+v", end)
	}
}

// afterDaemon checks that a modern client's call of a modern server continues with the
// next daemon, because the message has the state. A legacy client over connect gets an
// error for its call; over HTTP its connection broke.
func (k killing) afterDaemon(a *answerer) {
	a.t.Helper()
	switch {
	case k.modern:
		end := a.answer(strconv.Itoa(k.round))
		if k.round == 1 && end.question == "[recorder] second?" {
			end = a.answer("2")
		}
		if goesOn := end.result == "first=1 second=2"; goesOn != (k.server == "modern") || !goesOn && end.failure == "" {
			a.t.Errorf("after the daemon was killed: %+v", end)
		}
	case k.transport == "connect":
		if end := a.turn(); end.failure == "" {
			a.t.Errorf("after the daemon was killed: %+v", end)
		}
	}
}

// recorded checks that the audit log has each question, at most the given answers, and
// verifies.
func (k killing) recorded(t *testing.T, d *doortest.Daemon, seen, given int) {
	t.Helper()
	decided, _, answered := questions(t, d)
	if decided < seen || decided > seen+k.unheard() || answered > given {
		t.Errorf("%d questions on record, %d seen; %d answers on record, %d given", decided, seen, answered, given)
	}
	if out, err := d.Command("audit", "verify").CombinedOutput(); err != nil {
		t.Errorf("audit verify: %v\n%s", err, out)
	}
}

// unheard returns how many questions may be on record that no client has seen: a legacy server
// whose client was killed is told that its question was cancelled, and may ask the next one.
func (k killing) unheard() int {
	if k.victim == "client" && k.transport == "connect" && !k.modern && k.server == "legacy" {
		return 1
	}
	return 0
}

// asksOn waits until the call of a killed client has asked its next question, for some seconds
// at most. Another client shares the server: it must not get that question, and would as soon as
// a call of its own is in flight.
func asksOn(t *testing.T, d *doortest.Daemon, seen int) {
	t.Helper()
	for limit := time.Now().Add(5*time.Second + overload.Late()); time.Now().Before(limit); time.Sleep(50 * time.Millisecond) {
		if decided, _, _ := questions(t, d); decided > seen {
			return
		}
	}
}

// records reports whether a process runs the recorder.
func records(pid int) bool {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return bytes.Contains(line, []byte("recorder.mjs"))
}

// whole checks an undisturbed call.
func whole(t *testing.T, a *answerer) {
	t.Helper()
	first, second := a.call(), a.answer("1")
	if end := a.answer("2"); end.result != "first=1 second=2" {
		t.Errorf("the call of the next client: %+v, %+v, %+v", first, second, end)
	}
}

// killServers ends every process of the recorder below a daemon.
func killServers(t *testing.T, d *doortest.Daemon) {
	t.Helper()
	var killed []int
	for _, pid := range below(d.PID()) {
		if records(pid) && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed = append(killed, pid)
		}
	}
	if len(killed) == 0 {
		t.Fatal("no process of the server found")
	}
	doortest.Until(t, patience, "the killed processes end", func() bool { return !slices.ContainsFunc(killed, executes) })
}

// executes reports whether a thread of a process has not ended. A killed process may
// still receive data until its last thread has ended.
func executes(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if state := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))[0]; state != "Z" && state != "X" {
			return true
		}
	}
	return false
}

// below are the processes whose ancestor is pid.
func below(pid int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, _ := os.ReadFile(path)
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || len(fields) < 2 {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		children[parent] = append(children[parent], child)
	}
	var all []int
	for open := []int{pid}; len(open) > 0; {
		all = append(all, children[open[0]]...)
		open = append(open[1:], children[open[0]]...)
	}
	return all
}
