package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
)

func TestLaunchers(t *testing.T) {
	t.Parallel()
	c := good(t, "doorward.yaml", `mcpServers: {notes: {command: npx}}
agent:
  launchers:
    claude:
      command: claude
      args: ["-p", "--model", "{model}"]
      env: {KEY: "${env:API_KEY}"}
      roots: ["${HOME}/src", work]
      rights: ["server:notes", "tool:notes/add", agent, instructions]
      models: [small, large]
      budget: {max_seconds: 60, max_children: 1, max_messages: 5}
      output: 1MiB
      sandbox: strict
      network: [443]
      read: [data]
      limits: {memory: 1GiB}
    plain: {command: /usr/bin/agent, cwd: /srv}
`)
	words := func(all ...string) (out []secret.Value) {
		for _, w := range all {
			out = append(out, secret.New(w))
		}
		return out
	}
	want := map[string]*config.Launcher{
		"claude": {
			Name: "claude", Command: "claude", Path: "/usr/bin/claude", Args: words("-p", "--model", "{model}"), Env: map[string]secret.Value{"KEY": secret.New(password)},
			Cwd: "/home/ada/src", Roots: []string{"/home/ada/src", "/etc/doorward/work"}, Rights: []string{"server:notes", "tool:notes/add", "agent", "instructions"},
			Models: []string{"small", "large"}, Budget: config.Budget{Seconds: 60, Children: 1, Messages: 5}, Output: 1 << 20, Trust: "auto",
			Sandbox: "strict", Network: "443", Read: []string{"/etc/doorward/data"}, Limits: config.ServerLimits{Memory: 1 << 30, Processes: 512, Files: 4096},
		},
		"plain": {
			Name: "plain", Command: "/usr/bin/agent", Path: "/usr/bin/agent", Cwd: "/srv", Roots: []string{"/srv"},
			Budget: config.Budget{Seconds: 1800, Messages: 100}, Output: 8 << 20, Trust: "auto",
			Sandbox: "contain", Network: "inherit", Limits: config.ServerLimits{Memory: 2 << 30, Processes: 512, Files: 4096},
		},
	}
	if diff := cmp.Diff(want, c.Agent.Launchers); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if d := good(t, "doorward.yaml", "agent:\n"); d.Agent.Launchers != nil {
		t.Errorf("launchers without configuration: %v", d.Agent.Launchers)
	}
}

// A launcher with a problem of its own is refused with the reason, and the others stay usable.
func TestABadLauncherDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	c, ps := parse("doorward.yaml", "agent: {launchers: {a: {command: missing, cwd: /srv}, b: {command: /usr/bin/agent, cwd: /srv}}}\n")
	if c == nil || len(ps) != 1 || c.Agent.Launchers["a"].Refused != "command: finding the command: no such program on PATH" || c.Agent.Launchers["b"].Refused != "" {
		t.Errorf("%v, %+v", ps, c)
	}
}
