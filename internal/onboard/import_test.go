package onboard_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/doorward/doorward/internal/onboard"
)

// accepted judges every configuration as valid.
func accepted([]byte) string { return "" }

// imported imports a client's file into an empty configuration. WORK in the text is
// the project's directory.
func imported(t *testing.T, client, text string) (servers map[string]any, notes string) {
	t.Helper()
	dir := t.TempDir()
	home := filepath.Join(dir, "home")
	p := onboard.Places{OS: "linux", Dir: dir, Env: func(name string) (string, bool) { return home, name == "HOME" }}
	c := onboard.Find(client)
	path, err := p.User(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "WORK", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	conf, err := onboard.Read(filepath.Join(dir, "doorward.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := onboard.Import{Places: p, Judge: accepted}.Plan(p.Sources([]*onboard.Client{c}), conf)
	if err != nil {
		t.Fatalf("%s: %v", client, err)
	}
	var out struct {
		Servers map[string]any `yaml:"mcpServers"`
	}
	if err := yaml.Unmarshal(plan.Change.After, &out); err != nil {
		t.Fatal(err)
	}
	return out.Servers, strings.ReplaceAll(strings.Join(plan.Notes, "\n"), dir, "WORK")
}

// TestEachDialectIsTranslated: the file of each client is translated to entries of
// mcpServers, with a note where something changes.
func TestEachDialectIsTranslated(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ client, text, want, note string }{
		"a program": {"cursor", `{"mcpServers": {"a": {"command": "npx", "args": ["-y", "b"], "env": {"A": "${env:B}", "N": 1}}}}`,
			`{a: {command: npx, args: ["-y", b], env: {A: "${env:B}", N: "1"}}}`, ""},
		"a variable with a default": {"claude-code", `{"mcpServers": {"a": {"command": "x", "env": {"A": "${B:-c}"}}}}`,
			`{a: {command: x, env: {A: "${B:-c}"}}}`, ""},
		"the project of Claude Code": {"claude-code", `{"projects": {"WORK": {"mcpServers": {"a": {"command": "x"}}}, "/other": {"mcpServers": {"b": {"command": "x"}}}}}`,
			`{a: {command: x, cwd: WORK}}`, ""},
		"a brace alone": {"cursor", `{"mcpServers": {"a": {"command": "x", "args": ["${b", "$c"]}}}`, `{a: {command: x, args: ["$${b", "$c"]}}`, ""},
		"disabled":      {"cline", `{"mcpServers": {"a": {"command": "x", "disabled": true, "autoApprove": ["t"]}}}`, `{a: {command: x, disabled: true}}`, ""},
		"lists of tools": {"gemini", `{"mcpServers": {"a": {"command": "x", "includeTools": ["r"], "excludeTools": ["w"]}}}`,
			`{a: {command: x, doorward: {tools: {allow: [r], deny: [w]}}}}`, ""},
		"no tool at all":      {"copilot", `{"mcpServers": {"a": {"type": "local", "command": "x", "tools": []}}}`, `{a: {command: x, doorward: {tools: {allow: []}}}}`, ""},
		"every tool":          {"copilot", `{"mcpServers": {"a": {"type": "local", "command": "x", "tools": ["*"]}}}`, `{a: {command: x}}`, ""},
		"SSE of Gemini":       {"gemini", `{"mcpServers": {"a": {"url": "https://h/x"}, "b": {"httpUrl": "https://h/x"}}}`, `{a: {type: sse, url: "https://h/x"}, b: {url: "https://h/x"}}`, ""},
		"a bare variable":     {"gemini", `{"mcpServers": {"a": {"command": "x", "env": {"A": "$B"}}}}`, `{a: {command: x, env: {A: "${env:B}"}}}`, ""},
		"serverUrl":           {"windsurf", `{"mcpServers": {"a": {"serverUrl": "https://h/sse"}}}`, `{a: {type: sse, url: "https://h/sse"}}`, ""},
		"streamableHttp":      {"cline", `{"mcpServers": {"a": {"type": "streamableHttp", "url": "https://h/sse", "headers": {"X": "y"}}}}`, `{a: {url: "https://h/sse", headers: {X: "y"}}}`, ""},
		"an editor's folder":  {"vscode", `{"servers": {"a": {"command": "x", "args": ["${userHome}${/}y"]}}}`, `{a: {command: x, args: ["WORK/home/y"]}}`, ""},
		"an input":            {"vscode", `{"inputs": [{"id": "my-key", "description": "Key"}], "servers": {"a": {"command": "x", "env": {"K": "${input:my-key}"}}}}`, `{a: {command: x, env: {K: "${env:MY_KEY}"}}}`, "a of vscode: the input my-key (Key) becomes the environment variable MY_KEY of the daemon"},
		"an environment file": {"vscode", `{"servers": {"a": {"command": "x", "envFile": ".env"}}}`, `{a: {command: x}}`, "a of vscode: envFile is not imported (its path is not known): write its values in env"},
		"a secret argument":   {"cursor", `{"mcpServers": {"a": {"command": "x", "args": ["--api-key", "k1", "--token=k2", "--port", "80", "ghp_k3"]}}}`, `{a: {command: x, args: ["--api-key", k1, "--token=k2", "--port", "80", ghp_k3]}}`, "a: values that look like secrets stay in its arguments, which every user of the machine can read: --api-key, --token, argument 6; "},
		"a list as command":   {"opencode", `{"mcp": {"a": {"type": "local", "command": ["x", "y"], "environment": {"K": "{env:V}"}, "enabled": false}}}`, `{a: {command: x, args: ["y"], env: {K: "${env:V}"}, disabled: true}}`, ""},
		"a remote one":        {"opencode", `{"mcp": {"servers": {"a": {"type": "remote", "url": "https://h/mcp", "headers": {"A": "{file:~/k}"}}}}}`, `{a: {url: "https://h/mcp", headers: {A: "${file:WORK/home/k}"}}}`, ""},
		"its second version":  {"opencode", `{"mcp": {"timeout": 5, "servers": {"a": {"type": "local", "command": ["x"], "disabled": true}}}}`, `{a: {command: x, disabled: true}}`, ""},
		"one called servers":  {"opencode", `{"mcp": {"servers": {"type": "local", "command": ["x"]}}}`, `{servers: {command: x}}`, ""},
		"Codex": {"codex", "[mcp_servers.a]\ncommand = \"x\"\nenv_vars = [\"E\"]\nenabled_tools = [\"t\"]\n[mcp_servers.a.env]\nK = \"${no reference}\"\n[mcp_servers.b]\nurl = \"https://h/mcp\"\nbearer_token_env_var = \"T\"\nenv_http_headers = {X = \"Y\"}\n",
			`{a: {command: x, env: {E: "${env:E}", K: "$${no reference}"}, doorward: {tools: {allow: [t]}}}, b: {url: "https://h/mcp", headers: {Authorization: "Bearer ${env:T}", X: "${env:Y}"}}}`, ""},
		"Goose":         {"goose", "extensions:\n  a: {type: stdio, cmd: x, args: [\"y\"], envs: {K: v}, env_keys: [S], enabled: true}\n  b: {type: streamable_http, uri: 'https://h/mcp', headers: {A: b}, enabled: true}\n  c: {type: builtin}\n", `{a: {command: x, args: ["y"], env: {K: v, S: "${env:S}"}}, b: {url: "https://h/mcp", headers: {A: b}}}`, "c of goose: left out: its type is builtin"},
		"Continue":      {"continue", "mcpServers:\n  - name: My Server\n    command: x\n    env: {K: '${{ secrets.T }}'}\n  - name: r\n    type: sse\n    url: https://h/x\n    requestOptions: {headers: {A: b}}\n", `{My-Server: {command: x, env: {K: "${env:T}"}}, r: {type: sse, url: "https://h/x", headers: {A: b}}}`, "My Server of continue is imported under the name My-Server"},
		"Zed":           {"zed", `{"context_servers": {"a": {"source": "custom", "command": "x", "args": ["y"]}, "b": {"command": {"path": "x", "args": ["z"]}}, "c": {"source": "extension", "settings": {}}}}`, `{a: {command: x, args: ["y"]}, b: {command: x, args: [z]}}`, "c of zed: left out: it has neither a command nor an address"},
		"a home":        {"cursor", `{"mcpServers": {"a": {"command": "~/bin/x"}}}`, `{a: {command: WORK/home/bin/x}}`, ""},
		"a built-in":    {"cursor", `{"mcpServers": {"agent": {"command": "x"}}}`, `{agent-cursor: {command: x}}`, "agent of cursor is imported under the name agent-cursor"},
		"Doorward":      {"cursor", `{"mcpServers": {"a": {"command": "/x/doorward", "args": ["connect", "notes"]}, "b": {"url": "http://127.0.0.1:7866/mcp"}, "c": {"command": "npx", "args": ["mcp-remote", "http://localhost:7866/mcp"]}}}`, `{}`, "b of cursor is left out: it is Doorward itself"},
		"no servers":    {"cursor", `{}`, `{}`, ""},
		"strange names": {"cursor", `{"mcpServers": {"a__b": {"command": "x"}, "/": {"command": "y"}}}`, `{a_b: {command: x}, server: {command: "y"}}`, "a__b of cursor is imported under the name a_b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, notes := imported(t, tc.client, tc.text)
			text, err := yaml.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			var want, have map[string]any
			if err := yaml.Unmarshal([]byte(tc.want), &want); err != nil {
				t.Fatal(err)
			}
			dir := workOf(string(text))
			if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), dir, "WORK")), &have); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Error(diff)
			}
			if !strings.Contains(notes, tc.note) || tc.note == "" && notes != "" {
				t.Errorf("notes: %q, want %q", notes, tc.note)
			}
		})
	}
}

// workOf is the temporary directory that a text names; WORK when it names none.
func workOf(text string) string {
	at := strings.Index(text, os.TempDir())
	if at < 0 {
		return "WORK"
	}
	rest := text[at:]
	if end := strings.Index(rest, "/home"); end >= 0 {
		return rest[:end]
	}
	return strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0])
}

func TestSecretsLeaveTheConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := onboard.Places{OS: "linux", Dir: dir, Env: func(name string) (string, bool) { return dir, name == "HOME" }}
	path := filepath.Join(dir, "mcp.json")
	text := `{"mcpServers": {"a": {"command": "x", "env": {"API_KEY": "k1", "MODE": "fast", "DB": "postgres://u:p@h/d", "SET": "${env:TOKEN}", "OTHER": "sk-abc"}},
		"b": {"url": "https://h/", "headers": {"Authorization": "Bearer t1", "Accept": "text/plain"}}}}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := p.File(path)
	if err != nil {
		t.Fatal(err)
	}
	refer := func(server, key string) string { return "${file:/s/" + server + "." + key + "}" }
	plan, err := onboard.Import{Places: p, Judge: accepted, Refer: refer}.Plan([]onboard.Source{source}, onboard.File{Path: "doorward.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range plan.Secrets {
		got[s.Ref] = s.Value.Reveal()
	}
	want := map[string]string{"${file:/s/a.API_KEY}": "k1", "${file:/s/a.DB}": "postgres://u:p@h/d", "${file:/s/a.OTHER}": "sk-abc", "${file:/s/b.Authorization}": "t1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, value := range want {
		if strings.Contains(string(plan.Change.After), `"`+value) {
			t.Errorf("%s is in the configuration:\n%s", value, plan.Change.After)
		}
	}
	if !strings.Contains(string(plan.Change.After), `"Bearer ${file:/s/b.Authorization}"`) {
		t.Errorf("the scheme is gone:\n%s", plan.Change.After)
	}
}

// TestAConfigurationInJSONStaysJSON: an import into a doorward.yaml in JSON leaves JSON.
func TestAConfigurationInJSONStaysJSON(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := onboard.Places{OS: "linux", Dir: dir, Env: func(name string) (string, bool) { return dir, name == "HOME" }}
	path := filepath.Join(dir, "servers.json")
	if err := os.WriteFile(path, []byte(`{"mcpServers": {"a": {"command": "x"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := p.File(path)
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "doorward.yaml")
	if err := os.WriteFile(own, []byte("{\n  \"log\": {\"level\": \"warn\"}\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	conf, err := onboard.Read(own)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := onboard.Import{Places: p, Judge: accepted}.Plan([]onboard.Source{source}, conf)
	if err != nil {
		t.Fatal(err)
	}
	want := "{\n  \"log\": {\"level\": \"warn\"},\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"x\"\n    }\n  }\n}\n"
	if diff := cmp.Diff(want, string(plan.Change.After)); diff != "" {
		t.Error(diff)
	}
}

// TestAServerOfAProjectIsNoted: a note names the file of the project. The file
// may have come with a clone, and the daemon starts the server for every client.
func TestAServerOfAProjectIsNoted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := onboard.Places{OS: "linux", Dir: dir, Env: func(name string) (string, bool) { return dir + "/home", name == "HOME" }}
	if err := os.WriteFile(filepath.Join(dir, ".mcp.json"), []byte(`{"mcpServers": {"a": {"command": "./run"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	plan, err := onboard.Import{Places: p, Judge: accepted, Lenient: true}.Plan(p.Sources(onboard.Clients()), onboard.File{Path: "doorward.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a of claude-code comes from a file of this project, " + dir + "/.mcp.json; check what it starts"}
	if diff := cmp.Diff(want, plan.Notes); diff != "" {
		t.Error(diff)
	}
	if text := string(plan.Change.After); !strings.Contains(text, "command: "+dir+"/run\n") || !strings.Contains(text, "cwd: "+dir+"\n") {
		t.Error(text)
	}
}
