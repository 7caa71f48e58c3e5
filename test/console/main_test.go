// Package console drives the web console with the real Chromium: sign-in, every
// page, attacks, and use without a mouse.
package console

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// serverMode makes this test binary the MCP server behind the daemon.
const serverMode = "DOORWARD_TEST_OFFERS"

func TestMain(m *testing.M) {
	if file := os.Getenv(serverMode); file != "" {
		serve(file)
		return
	}
	if program := os.Getenv(agentMode); program != "" {
		startedAgent(program)
		return
	}
	if file := os.Getenv(hostileServerMode); file != "" {
		(&hostileServer{calls: file}).stdio()
		return
	}
	if url := os.Getenv(hostileClientMode); url != "" {
		hostileClient(url)
		return
	}
	os.Exit(m.Run())
}

// hostile is text that becomes markup wherever it is not escaped. It contains
// characters that reorder or hide the text around them.
const hostile = "<img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>\u202e\u200b'\"`{{.}}"

// serve is an MCP server that offers the tools listed in a file, and returns hostile
// text wherever the protocol has text.
func serve(file string) {
	fmt.Fprintln(os.Stderr, "standard error says "+hostile)
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var r struct {
			ID     json.RawMessage
			Method string
			Params struct{ ProtocolVersion string }
		}
		if json.Unmarshal(in.Bytes(), &r) != nil || r.ID == nil {
			continue
		}
		var result any
		switch r.Method {
		case "initialize":
			result = map[string]any{"protocolVersion": r.Params.ProtocolVersion, "capabilities": map[string]any{"tools": map[string]any{}},
				"serverInfo": map[string]string{"name": hostile, "version": "1"}, "instructions": hostile}
		case "tools/list":
			tools, err := os.ReadFile(file)
			if err != nil {
				tools = []byte("[]")
			}
			result = map[string]any{"tools": json.RawMessage(tools)}
		case "tools/call":
			result = map[string]any{"content": []map[string]string{{"type": "text", "text": hostile}}}
		default:
			out, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": r.ID, "error": map[string]any{"code": -32601, "message": hostile}})
			fmt.Println(string(out))
			continue
		}
		out, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": r.ID, "result": result})
		fmt.Println(string(out))
	}
}

// house is a daemon with hostile text wherever a server, an agent or a document
// can put it.
type house struct {
	*doortest.Daemon
	t      *testing.T
	offers string
}

const oddTool = "odd<img src=x onerror=alert(1)>"

func newHouse(t *testing.T) *house {
	t.Helper()
	dir := t.TempDir()
	h := &house{t: t, offers: filepath.Join(dir, "offers.json")}
	h.offer("it adds things " + hostile)
	guides := filepath.Join(dir, "guides")
	h.write(filepath.Join(guides, "house.md"), "---\nname: house\nclass: instructions\ndescription: a text\n---\nKeep <img src=x onerror=\"document.title='pwned'\">\n")
	policy := filepath.Join(dir, "policy.cedar")
	h.write(policy, "// "+hostile+"\npermit (principal == Principal::\"token:ci\", action, resource);\n")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	yaml := fmt.Sprintf("mcpServers:\n  odd:\n    command: %s\n    env: {%s: %s}\n    doorward: {sandbox: \"off\"}\npolicy: %s\ninstructions: {dir: %s}\n",
		self, serverMode, h.offers, policy, guides)
	h.Daemon = doortest.Start(t, yaml, doortest.Options{})
	h.run("tools", "odd")
	h.run("call", "odd", oddTool, "text=x")
	h.fails("call", "odd", "no-such "+hostile)
	h.run("call", "agent", "register", "--json", `{"name":"planner","summary":`+quoted(hostile)+`}`)
	h.run("agent", "send", "planner", "--subject", hostile, hostile)
	h.offer("it adds things, and tells me " + hostile)
	h.run("tools", "odd")
	return h
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func (h *house) write(path, text string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) offer(description string) {
	tools := []map[string]any{
		{"name": oddTool, "title": hostile, "description": description, "inputSchema": map[string]any{"type": "object"}},
		{"name": "plain", "description": "a tool that stays as it is", "inputSchema": map[string]any{"type": "object"}},
	}
	b, err := json.Marshal(tools)
	if err != nil {
		h.t.Fatal(err)
	}
	h.write(h.offers, string(b))
}

// run runs a doorward command that must succeed, and returns what it prints.
func (h *house) run(args ...string) string {
	h.t.Helper()
	out, err := h.output(args...)
	if err != nil {
		h.t.Fatalf("doorward %q: %v\n%s", args, err, out)
	}
	return out
}

func (h *house) fails(args ...string) {
	h.t.Helper()
	if out, err := h.output(args...); err == nil {
		h.t.Fatalf("doorward %q succeeds: %s", args, out)
	}
}

func (h *house) output(args ...string) (string, error) {
	cmd := h.Command(args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return string(out) + errs.String(), err
	}
	return string(out), nil
}

// address is a fresh address that signs in once.
func (h *house) address() string {
	h.t.Helper()
	return strings.TrimSpace(h.run("ui", "--print"))
}

// chromium is the system's browser. Where there is none the tests are skipped.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Chromium: run test/install.sh chromium as root, or install it")
	return ""
}

// within waits for something to become true.
func within(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	doortest.Until(t, limit, what, done)
}
