package console

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/doorward/doorward/test/doortest"
)

// agentMode makes this test binary an agent that Doorward starts. Its value is the doorward
// program through which the agent connects.
const agentMode = "TEST_AGENT_OF"

// alone is the prompt of an agent that starts no other one.
const alone = "alone"

// startedAgent registers, and starts another agent if its prompt says so. It runs until it
// is ended.
func startedAgent(program string) {
	prompt, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = helpedBy(exec.Command(program, "connect", "agent"), string(prompt))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	time.Sleep(time.Hour)
}

// helpedBy registers an agent that connects by a command, and starts the agent helper.
func helpedBy(cmd *exec.Cmd, helper string) error {
	a, err := talkTo(cmd)
	if err == nil {
		err = a.call("register", map[string]any{})
	}
	if err == nil && helper != alone {
		err = a.spawn(helper, alone)
	}
	return err
}

// newFamily is a daemon with an agent that started another one, which started a third.
func newFamily(t *testing.T) *house {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t}
	bin := os.Getenv("DOORWARD_BIN")
	if bin == "" {
		bin = filepath.Join(doortest.ModuleRoot(t), "bin", "doorward")
	}
	h.Daemon = doortest.Start(t, fmt.Sprintf("agent:\n  launchers:\n    helper: {command: %s, cwd: %s, env: {%s: %s}, sandbox: \"off\", budget: {max_seconds: 600, max_children: 2}}\n",
		self, t.TempDir(), agentMode, bin), doortest.Options{})
	a, err := talkTo(h.shim())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.end)
	if err := errors.Join(a.call("register", map[string]any{"name": "lead"}), a.spawn("second", "third")); err != nil {
		t.Fatal(err)
	}
	within(t, 30*time.Second, "three agents", func() bool { return strings.Contains(h.run("agent", "peers"), "third") })
	return h
}

// shim is a command that connects to the server agent as an agent other than the test.
func (h *house) shim() *exec.Cmd {
	cmd := h.Command("connect", "agent")
	sh := exec.Command("sh", append([]string{"-c", `"$@"; exit $?`, "sh", cmd.Path}, cmd.Args[1:]...)...) // the parent of the command counts as an agent
	sh.Env, sh.Dir = cmd.Env, cmd.Dir
	return sh
}

// talker is an agent that speaks MCP over stdio.
type talker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	n   int
}

func talkTo(cmd *exec.Cmd) (*talker, error) {
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		return nil, err
	}
	a := &talker{cmd: cmd, in: in, out: bufio.NewScanner(out)}
	_, err := a.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`)
	fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return a, err
}

func (a *talker) end() {
	a.in.Close()
	_ = a.cmd.Wait()
}

// ask sends a request and waits for its answer.
func (a *talker) ask(method, params string) (string, error) {
	a.n++
	fmt.Fprintf(a.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", a.n, method, params)
	for a.out.Scan() {
		if strings.Contains(a.out.Text(), fmt.Sprintf(`"id":%d`, a.n)) {
			return a.out.Text(), nil
		}
	}
	return "", fmt.Errorf("no answer to %s: %w", method, a.out.Err())
}

func (a *talker) call(tool string, args map[string]any) error {
	b, err := json.Marshal(map[string]any{"name": tool, "arguments": args})
	if err != nil {
		return err
	}
	answer, err := a.ask("tools/call", string(b))
	if err == nil && (strings.Contains(answer, `"isError":true`) || strings.Contains(answer, `"error":`)) {
		err = fmt.Errorf("%s: %s", tool, answer)
	}
	return err
}

// spawn starts an agent. Its prompt is the name of the agent that it starts in turn.
func (a *talker) spawn(name, prompt string) error {
	args := map[string]any{"launcher": "helper", "name": name, "prompt": prompt}
	return a.call("spawn", args)
}

// TestAgentsAreShownAsFamilies: each agent stands below the one that started it, three
// generations deep; axe reports nothing, the page fits a telephone, a key leads to each
// agent, and the tree keeps itself up to date.
func TestAgentsAreShownAsFamilies(t *testing.T) {
	b, h := newBrowser(t), newFamily(t)
	b.signIn(h)
	axe := axeSource(t)
	b.complaints()
	b.open(base(h) + "agents")
	for i, name := range []string{"lead", "second", "third"} {
		if got := b.text(`document.querySelector('section > ` + strings.Repeat(".kin > li > ", i) + `.kin > li > a')?.textContent ?? ''`); !strings.HasSuffix(got, name) {
			t.Errorf("generation %d is %q, want %s", i+1, got, name)
		}
	}
	if n := b.number(`document.querySelectorAll('.kin li').length`); n != 3 {
		t.Errorf("%v agents in the tree", n)
	}
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		if found := violations(b, axe); found != "" {
			t.Errorf("%s: %s", scheme, found)
		}
	}
	for _, width := range []int64{360, 3840} {
		b.width(width)
		if n := b.number("document.documentElement.scrollWidth"); n > float64(width) {
			t.Errorf("the page is %v wide in a window of %d", n, width)
		}
	}
	b.width(1280)
	b.run(`document.querySelector('#live > *').id = 'before'; document.body.dispatchEvent(new Event('live'))`)
	within(t, 20*time.Second, "a new part", func() bool { return b.text("document.getElementById('before')?.id ?? ''") == "" })
	if n := b.number(`document.querySelectorAll('.kin .kin .kin li').length`); n != 1 {
		t.Errorf("after an update %v agents are in the third generation", n)
	}
	b.run(`document.querySelector('.kin .kin li > a').focus(); 0`)
	b.do(chromedp.KeyEvent(kb.Tab))
	if at := b.text("document.activeElement.closest('.kin .kin .kin') ? document.activeElement.textContent : ''"); !strings.HasSuffix(at, "third") {
		t.Errorf("the next stop is %q", at)
	}
	b.do(chromedp.KeyEvent(kb.Enter))
	within(t, 20*time.Second, "the page of the third agent", func() bool { return strings.Contains(b.text("document.title"), "third") })
	for _, c := range b.complaints() {
		t.Error(c)
	}
}
