//go:build interop

// Package interop connects real MCP clients and servers through the doorward
// binary: both generations of the TypeScript SDK, the MCP Inspector, agent programs
// such as Claude Code, the public reference servers and go-sdk's conformance server.
//
// The clients of the SDKs also run the same steps without Doorward (TestDirect), so that
// a failure behind the gateway is the gateway's.
package interop

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

// server is one entry of mcpServers, as the tests write it.
type server struct {
	Type     string         `json:"type,omitempty"`
	Command  string         `json:"command,omitempty"`
	Args     []string       `json:"args,omitempty"`
	URL      string         `json:"url,omitempty"`
	Doorward map[string]any `json:"doorward"`
}

// house is the configuration of a daemon with its servers.
type house struct {
	servers map[string]server
	folder  string // the one that `files` may touch
}

// options of a server: it may ask clients questions, and has instances for many
// concurrent sessions. Its sandbox is the default.
func options(more map[string]any) map[string]any {
	o := map[string]any{
		"ask":           map[string]any{"allow": []string{"elicitation", "sampling", "roots"}},
		"max_instances": 200,
		"allow_private": true,
	}
	for key, value := range more {
		if value == nil {
			delete(o, key)
			continue
		}
		o[key] = value
	}
	return o
}

func stdio(command []string, more map[string]any) server {
	o := options(more)
	delete(o, "allow_private")
	return server{Command: command[0], Args: command[1:], Doorward: o}
}

func remote(kind, url string, more map[string]any) server {
	o := options(more)
	delete(o, "max_instances")
	return server{Type: kind, URL: url, Doorward: o}
}

// yaml is the configuration as JSON, which is YAML too.
func (h house) yaml(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"listen":     map[string]any{"http": []any{map[string]any{"addr": "127.0.0.1:0"}}},
		"mcpServers": h.servers,
		"agent":      map[string]any{"enabled": false},
		"limits":     map[string]any{"sessions": 2000, "sessions_per_principal": 2000, "children": 500, "calls_per_second": 100000},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}

func (h house) start(t *testing.T) *doortest.Daemon {
	t.Helper()
	return doortest.Start(t, h.yaml(t), doortest.Options{})
}

// prefixed is the prefix of a server's names on the aggregate.
func prefixed(server string) string { return server + "__" }

func endpoint(d *doortest.Daemon, transport, name string) string {
	path := transport
	if transport == "http" {
		path = "mcp"
	}
	if name == "" {
		return fmt.Sprintf("%s/%s", d.URL, path)
	}
	return fmt.Sprintf("%s/%s/%s", d.URL, path, name)
}

func words(s string) []string { return strings.Fields(s) }
