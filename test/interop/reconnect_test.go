//go:build interop

package interop

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

// resume requests the events after the event id.
func (w *web) resume(t *testing.T, id string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, w.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Session-Id", w.session)
	req.Header.Set("MCP-Protocol-Version", "2025-11-25")
	req.Header.Set("Last-Event-ID", id)
	resp, err := doortest.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// TestResume: after the stream of a running call breaks off, as with an unstable network,
// the client resumes it with Last-Event-ID and gets the complete answer. From the first
// event id the whole stream is replayed.
func TestResume(t *testing.T) {
	d := house{servers: map[string]server{"recorder": stdio(fixture.Recorder(t, "legacy"), nil)}}.start(t)
	w := dialWeb(t, d.MCP("recorder"), false)
	sse := http.Header{"Accept": {"text/event-stream, application/json"}}
	resp := w.post(t, `{"jsonrpc":"2.0","id":"long","method":"tools/call","params":{"name":"wait","arguments":{"ms":1200},"_meta":{"progressToken":"p"}}}`, sse)
	stream := newEvents(resp.Body)
	first, err := stream.next()
	if err != nil || first.id == "" || len(first.data) > 0 || first.retry == "" {
		t.Fatalf("the stream does not begin with a priming event that has an id and a delay: %+v %v", first, err)
	}
	progress, err := stream.next()
	if err != nil || !strings.Contains(string(progress.data), `"progressToken":"p"`) || progress.id == "" {
		t.Fatalf("no progress that could be resumed from: %+v %v", progress, err)
	}
	resp.Body.Close()

	again := w.resume(t, progress.id)
	defer again.Body.Close()
	if again.StatusCode != http.StatusOK {
		t.Fatalf("HTTP %d to Last-Event-ID", again.StatusCode)
	}
	answer, err := readReply(again, `"long"`)
	if err != nil || !strings.Contains(string(answer.Result), "waited") {
		t.Fatalf("answer after the interruption: %s %v", answer.Result, err)
	}

	// From the first event the whole stream is replayed in order.
	replay := w.resume(t, first.id)
	defer replay.Body.Close()
	events := newEvents(replay.Body)
	for _, part := range []string{`"progressToken":"p"`, "waited"} {
		e, err := events.next()
		for err == nil && len(e.data) == 0 {
			e, err = events.next()
		}
		if err != nil || !strings.Contains(string(e.data), part) {
			t.Fatalf("replay: %q %v, want %s", e.data, err, part)
		}
	}
}

// TestResumeIsPrivate: an event id does not give access to another session's stream.
func TestResumeIsPrivate(t *testing.T) {
	d := house{servers: map[string]server{"recorder": stdio(fixture.Recorder(t, "legacy"), nil)}}.start(t)
	mine, other := dialWeb(t, d.MCP("recorder"), false), dialWeb(t, d.MCP("recorder"), false)
	sse := http.Header{"Accept": {"text/event-stream, application/json"}}
	resp := mine.post(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"secret":"xyzzy"}}}`, sse)
	first, err := newEvents(resp.Body).next()
	resp.Body.Close()
	if err != nil || first.id == "" {
		t.Fatalf("%+v %v", first, err)
	}
	stolen := other.resume(t, first.id)
	defer stolen.Body.Close()
	if stolen.StatusCode == http.StatusOK {
		e, _ := newEvents(stolen.Body).next()
		t.Fatalf("another session's event id is answered: %s", e.data)
	}
}

// TestRestart: after the daemon was stopped or killed, and started again, each client
// continues in its session: it lists, calls, and answers questions, with each SDK and era.
func TestRestart(t *testing.T) {
	for name, end := range map[string]func(*doortest.Daemon){
		"ended": func(d *doortest.Daemon) { d.Stop() }, "killed": func(d *doortest.Daemon) { d.Kill9() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := house{servers: map[string]server{"recorder": stdio(fixture.Recorder(t, "legacy"), nil)}}
			yaml := strings.Replace(servers.yaml(t), "127.0.0.1:0", fmt.Sprintf("127.0.0.1:%d", doortest.FreePort(t)), 1)
			d := doortest.Start(t, yaml, doortest.Options{})
			var clients []*lasting
			for _, s := range []spec{{SDK: "v1"}, {SDK: "v2"}, {SDK: "v2", Era: "auto"}, {SDK: "v2", Era: "modern"}, {SDK: "mcp-go"}, {SDK: "mcp-go", Era: "auto"}, {SDK: "go-sdk"}} {
				one, all := s, s
				one.URL, all.URL, all.Prefix = d.MCP("recorder"), d.MCP(""), "recorder__"
				clients = append(clients, one.lasts(t), all.lasts(t))
			}
			for round := range 2 {
				end(d)
				d = doortest.Start(t, yaml, doortest.Options{Dir: d.Dir})
				for _, c := range clients {
					c.goesOn(t, round)
				}
			}
		})
	}
}

// lasting is a client that outlives the daemon, such as test/clients/restart.mjs.
type lasting struct {
	spec spec
	in   io.Writer
	out  *bufio.Scanner
}

// lasts starts the client and waits until it has called.
func (s spec) lasts(t *testing.T) *lasting {
	t.Helper()
	s.Transport = "http"
	if s.Era == "" {
		s.Era = "legacy"
	}
	argument, err := json.Marshal(s)
	must(t, err)
	cmd := exec.Command(fixture.Node(t), fixture.Script(t, "clients", "restart.mjs"), string(argument))
	switch s.SDK {
	case "mcp-go":
		cmd = exec.Command(fixture.MCPGo(t), "-restart", string(argument))
	case "go-sdk":
		cmd = exec.Command(doortest.SDK(t, "sdk"), "restart", string(argument))
	}
	cmd.Env = fixture.ClientEnv(t.TempDir())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		hurry := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		hurry.Stop()
	})
	l := &lasting{s, in, bufio.NewScanner(out)}
	if !l.out.Scan() || l.out.Text() != "waiting" {
		t.Fatalf("%+v: %q", s, l.out.Text())
	}
	return l
}

// goesOn makes the client list, call and answer again.
func (l *lasting) goesOn(t *testing.T, round int) {
	t.Helper()
	fmt.Fprintln(l.in, round)
	l.out.Scan()
	want := fmt.Sprintf(`{"line":"%d","tools":5,"echo":"{\"after\":\"%d\"}","ask":"first=yes second=yes"}`, round, round)
	if got := l.out.Text(); got != want {
		t.Errorf("%s %s at %s: %s, want %s", l.spec.SDK, l.spec.Era, l.spec.URL, got, want)
	}
}
