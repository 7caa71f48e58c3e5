package onboard_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/internal/onboard"
)

// TestEachIgnoredKeyHasANote: a key that import reads has no note, and any other one that is set has
// one, in the file of every client.
func TestEachIgnoredKeyHasANote(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"oauth", "auth", "timeout", "startup_timeout_sec", "tool_timeout_sec", "headersHelper", "unknown", "sandboxEnabled"} {
		for _, value := range []string{"5", `"x"`, `{"a": 1}`, "true", "null"} {
			for _, client := range []string{"claude-code", "gemini"} {
				for _, kind := range []string{`"command": "x", "args": ["a"], "env": {"A": "b"}`, `"url": "https://h/mcp", "headers": {"A": "b"}`} {
					text := fmt.Sprintf(`{"mcpServers": {"a": {%s, "disabled": false, "%s": %s}}}`, kind, key, value)
					_, notes := imported(t, client, text)
					want := 1
					if value == "null" {
						want = 0
					}
					if n := strings.Count("\n"+notes, "\na of "+client+": "+key+" is not imported"); n != want || strings.Count(notes, "is not imported") != want {
						t.Errorf("%s: %s: %q", client, text, notes)
					}
				}
			}
		}
	}
}

// TestAnIgnoredOptionOfARequestHasANote: of Continue's requestOptions only the headers are read.
func TestAnIgnoredOptionOfARequestHasANote(t *testing.T) {
	t.Parallel()
	_, notes := imported(t, "continue", "mcpServers:\n  - {name: a, url: 'https://h/mcp', requestOptions: {headers: {A: b}, timeout: 5}}\n")
	if want := "a of continue: requestOptions.timeout is not imported"; notes != want {
		t.Errorf("%q, want %q", notes, want)
	}
}

// TestArgumentsThatAreNoTextAreKept: in each format a number or truth value among the arguments
// is the text of it.
func TestArgumentsThatAreNoTextAreKept(t *testing.T) {
	t.Parallel()
	for client, text := range map[string]string{
		"cursor":   `{"mcpServers": {"a": {"command": "x", "args": ["--port", 8080, "-r", 0.5, "-b", true, -1]}}}`,
		"opencode": `{"mcp": {"a": {"type": "local", "command": ["x", "--port", 8080, "-r", 0.5, "-b", true, -1]}}}`,
		"codex":    "[mcp_servers.a]\ncommand = \"x\"\nargs = [\"--port\", 8080, \"-r\", 0.5, \"-b\", true, -1]\n",
		"goose":    "extensions:\n  a: {type: stdio, cmd: x, args: [--port, 8080, -r, 0.5, -b, true, -1]}\n",
	} {
		servers, _ := imported(t, client, text)
		a, _ := servers["a"].(map[string]any)
		if diff := cmp.Diff([]any{"--port", "8080", "-r", "0.5", "-b", "true", "-1"}, a["args"]); diff != "" {
			t.Errorf("%s: %s", client, diff)
		}
	}
}

// TestAServerThatItsClientDoesNotUseIsDisabled: a list of servers that the client does not use is
// respected, wherever the client keeps it.
func TestAServerThatItsClientDoesNotUseIsDisabled(t *testing.T) {
	t.Parallel()
	const two = `{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}`
	for name, tc := range map[string]struct {
		client string
		files  map[string]string
		off    string // the names of the disabled servers
	}{
		"Gemini excludes": {"gemini", map[string]string{".gemini/settings.json": `{"mcp": {"excluded": ["a"]}, ` + two[1:]}, "a"},
		"Gemini allows":   {"gemini", map[string]string{".gemini/settings.json": `{"mcp": {"allowed": ["a"]}, ` + two[1:]}, "b"},
		"Qwen excludes":   {"qwen", map[string]string{"project/.qwen/settings.json": `{"mcp": {"excluded": ["b"]}, ` + two[1:]}, "b"},
		"neither":         {"gemini", map[string]string{".gemini/settings.json": two}, ""},
		"Claude Code":     {"claude-code", map[string]string{"project/.mcp.json": two, ".claude.json": `{"projects": {"DIR": {"disabledMcpjsonServers": ["a"]}, "/other": {"disabledMcpjsonServers": ["b"]}}}`}, "a"},
		"its settings":    {"claude-code", map[string]string{"project/.mcp.json": two, "project/.claude/settings.local.json": `{"disabledMcpjsonServers": ["b"]}`}, "b"},
		"all settings": {"claude-code", map[string]string{"project/.mcp.json": two, "project/.claude/settings.json": `{"disabledMcpjsonServers": ["a"]}`,
			".claude/settings.json": `{"disabledMcpjsonServers": ["b"]}`}, "a b"},
		"of the project alone": {"claude-code", map[string]string{".claude.json": `{"projects": {"DIR": {"disabledMcpServers": ["a"], ` + two[1:] + `}}`}, "a"},
		"broken settings":      {"claude-code", map[string]string{"project/.mcp.json": two, "project/.claude/settings.json": `{`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			p := placesIn(home, "", "")
			for file, text := range tc.files {
				path := filepath.Join(home, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "DIR", p.Dir)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			plan, err := onboard.Import{Places: p, Judge: accepted}.Plan(p.Sources([]*onboard.Client{onboard.Find(tc.client)}), onboard.File{Path: "doorward.yaml"})
			if err != nil {
				t.Fatal(err)
			}
			got, all := []string{}, parsed(t, onboard.YAML, plan.Change.After)["mcpServers"].(map[string]any)
			for _, name := range []string{"a", "b"} {
				if s, _ := all[name].(map[string]any); s == nil || s["disabled"] == true {
					got = append(got, name)
				}
			}
			if len(all) != 2 || strings.Join(got, " ") != tc.off {
				t.Errorf("disabled: %v in\n%s", got, plan.Change.After)
			}
		})
	}
}

// TestASecondImportChangesNothing: whatever transport a client's entry names, and however its address
// ends, its server is there when it is imported again.
func TestASecondImportChangesNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"", "http", "sse", "streamable-http", "streamableHttp", "remote"} {
		for _, key := range []string{"url", "httpUrl", "serverUrl"} {
			for _, end := range []string{"", "mcp", "sse", "sse/"} {
				for _, client := range []string{"cursor", "gemini"} {
					dir := t.TempDir()
					p := onboard.Places{OS: "linux", Dir: dir, Env: func(name string) (string, bool) { return dir, name == "HOME" }}
					path, err := p.User(onboard.Find(client))
					if err != nil {
						t.Fatal(err)
					}
					if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, fmt.Appendf(nil, `{"mcpServers": {"a": {"type": %q, %q: "https://h/%s"}}}`, kind, key, end), 0o600); err != nil {
						t.Fatal(err)
					}
					conf := onboard.File{Path: "doorward.yaml"}
					var plan onboard.Plan
					for range 2 {
						if plan, err = (onboard.Import{Places: p, Judge: accepted}).Plan(p.Sources([]*onboard.Client{onboard.Find(client)}), conf); err != nil {
							t.Fatal(err)
						}
						conf.Text = plan.Change.After
					}
					if !strings.Contains(string(conf.Text), "a:\n") || strings.Contains(string(conf.Text), "a-"+client) {
						t.Errorf("%s %s %s %s:\n%s", client, kind, key, end, conf.Text)
					}
				}
			}
		}
	}
}
