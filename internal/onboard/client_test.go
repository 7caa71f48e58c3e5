package onboard_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/tailscale/hujson"
	"go.yaml.in/yaml/v3"

	"github.com/doorward/doorward/internal/onboard"
)

const program = "/opt/doorward/bin/doorward"

// now is the time of every backup in these tests.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// parsed reads a client's file as the client does.
func parsed(t *testing.T, f onboard.Format, text []byte) map[string]any {
	t.Helper()
	var out map[string]any
	var err error
	switch f {
	case onboard.TOML:
		err = toml.Unmarshal(text, &out)
	case onboard.YAML:
		err = yaml.Unmarshal(text, &out)
	default:
		if text, err = hujson.Standardize(append([]byte{}, text...)); err == nil {
			err = json.Unmarshal(text, &out)
		}
	}
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return out
}

// shapes is the file of each client after Doorward was installed into an absent
// one, as JSON.
var shapes = map[string]string{
	"amp":            `{"amp.mcpServers": {"doorward": {"command": "P", "args": ["connect"]}}}`,
	"antigravity":    `{"mcpServers": {"doorward": {"command": "P", "args": ["connect"]}}}`,
	"claude-code":    `{"mcpServers": {"doorward": {"type": "stdio", "command": "P", "args": ["connect"]}}}`,
	"claude-desktop": `{"mcpServers": {"doorward": {"command": "P", "args": ["connect"]}}}`,
	"cline":          `{"mcpServers": {"doorward": {"command": "P", "args": ["connect"]}}}`,
	"codex":          `{"mcp_servers": {"doorward": {"command": "P", "args": ["connect"]}}}`,
	"continue":       `{"mcpServers": [{"name": "doorward", "command": "P", "args": ["connect"]}]}`,
	"copilot":        `{"mcpServers": {"doorward": {"type": "local", "command": "P", "args": ["connect"], "tools": ["*"]}}}`,
	"crush":          `{"mcp": {"doorward": {"type": "stdio", "command": "P", "args": ["connect"]}}}`,
	"cursor":         `{"mcpServers": {"doorward": {"command": "P", "args": ["connect"]}}}`,
	"gemini":         `{"mcpServers": {"doorward": {"command": "P", "args": ["connect"]}}}`,
	"goose":          `{"extensions": {"doorward": {"enabled": true, "type": "stdio", "name": "doorward", "description": "The MCP servers behind Doorward", "cmd": "P", "args": ["connect"], "envs": {}, "timeout": 300}}}`,
	"jetbrains":      `{"servers": {"doorward": {"type": "stdio", "command": "P", "args": ["connect"]}}}`,
	"kiro":           `{"mcpServers": {"doorward": {"command": "P", "args": ["connect"]}}}`,
	"lmstudio":       `{"mcpServers": {"doorward": {"command": "P", "args": ["connect"]}}}`,
	"opencode":       `{"mcp": {"doorward": {"type": "local", "command": ["P", "connect"], "enabled": true}}}`,
	"qwen":           `{"mcpServers": {"doorward": {"command": "P", "args": ["connect"]}}}`,
	"roo":            `{"mcpServers": {"doorward": {"command": "P", "args": ["connect"]}}}`,
	"vscode":         `{"servers": {"doorward": {"type": "stdio", "command": "P", "args": ["connect"]}}}`,
	"windsurf":       `{"mcpServers": {"doorward": {"command": "P", "args": ["connect"]}}}`,
	"zed":            `{"context_servers": {"doorward": {"source": "custom", "command": "P", "args": ["connect"], "env": {}}}}`,
}

// texts are files that users have, by their format; KEY is the client's key.
var texts = map[onboard.Format]map[string]string{
	onboard.JSON: {
		"empty":           "",
		"blank":           "\n",
		"empty object":    "{}",
		"other keys":      "{\n  \"theme\": \"dark\"\n}\n",
		"no entries":      "{\n\t\"KEY\": {},\n\t\"z\": 1\n}\n",
		"null":            "{\"KEY\": null}",
		"one line":        `{"a": [1, 2], "KEY": {"x": {"command": "y"}}, "b": 1.0}`,
		"four spaces":     "{\n    \"KEY\": {\n        \"x\": {\n            \"command\": \"y\"\n        }\n    }\n}",
		"tabs":            "{\n\t\"KEY\": {\n\t\t\"x\": {\"command\": \"y\"}\n\t}\n}\n",
		"CRLF":            "{\r\n  \"KEY\": {\r\n    \"x\": {\"command\": \"y\"}\r\n  }\r\n}\r\n",
		"byte order mark": "\ufeff{\n  \"KEY\": {\"x\": {\"command\": \"y\"}}\n}\n",
		"comments":        "// top\n{\n  /* a */ \"b\": 1, // c\n  \"KEY\": {\n    // before\n    \"x\": {\"command\": \"y\"} // behind\n    // last\n  }\n}\n// end\n",
		"trailing commas": "{\n  \"KEY\": {\n    \"x\": {\"command\": \"y\",}, // behind\n  },\n}\n",
		"comment inside":  "{\n  \"KEY\": {\n    // none yet\n  }\n}\n",
		"large numbers":   "{\n  \"id\": 12345678901234567890,\n  \"f\": 1e400,\n  \"KEY\": {\"x\": {\"command\": \"y\"}}\n}\n",
	},
	onboard.TOML: {
		"empty":            "",
		"other keys":       "model = \"m\" # mine\n",
		"no line end":      "model = \"m\"",
		"one server":       "# top\n[KEY.x]\ncommand = \"y\"\n\n[KEY.x.env]\nA = \"b\"\n\n# last\n[projects.\"/a\"]\ntrust_level = \"trusted\"\n",
		"CRLF":             "[KEY.x]\r\ncommand = \"y\"\r\n",
		"empty table":      "[KEY]\n",
		"many-line values": "a = [\n  1, # [KEY.doorward]\n]\nb = \"\"\"\n[KEY.doorward]\n\"\"\"\n",
	},
	onboard.YAML: {
		"empty":           "",
		"other keys":      "model: m # mine\n",
		"no line end":     "model: m",
		"comments alone":  "# mine\n",
		"no value":        "KEY: # none\nmodel: m\n",
		"empty brackets":  "a: 1\nKEY: EMPTY # none\nmodel: m\n",
		"one":             "# top\nKEY:\n  ENTRY\n\n# the model\nmodel: m\n",
		"one at the end":  "model: m\nKEY:\n    ENTRY",
		"brackets":        "KEY: FLOW\nmodel: m\n",
		"document marks":  "---\nKEY:\n  ENTRY\n...\n",
		"CRLF":            "KEY:\r\n  ENTRY\r\nmodel: m\r\n",
		"wide characters": "KEY:\n  ENTRY\n\"ключ\": {a: \"ü\"}\n",
	},
}
