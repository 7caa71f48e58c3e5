//go:build interop

package interop

import (
	"fmt"
	"strings"
	"testing"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

// TestClaudeCodeGoesOn: in one turn of the real program, over `doorward connect` and over
// HTTP, the daemon is killed and then ended between calls of a tool. Each call after that
// is answered, at the first attempt.
func TestClaudeCodeGoesOn(t *testing.T) {
	for name, entry := range map[string]func(*doortest.Daemon) map[string]any{
		"connect": func(d *doortest.Daemon) map[string]any { return connectEntry(d, "recorder") },
		"http": func(d *doortest.Daemon) map[string]any {
			return map[string]any{"type": "http", "url": d.MCP("recorder")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := house{servers: map[string]server{"recorder": stdio(fixture.Recorder(t, "legacy"), nil)}}
			yaml := strings.Replace(servers.yaml(t), "127.0.0.1:0", fmt.Sprintf("127.0.0.1:%d", fixture.FreePort(t)), 1)
			d := doortest.Start(t, yaml, doortest.Options{})
			call := func(turn int, before func()) fixture.Step {
				return func(fixture.Talk) fixture.Answer {
					before()
					return fixture.Use("mcp__door__echo", map[string]any{"turn": turn})
				}
			}
			again := func() { d = doortest.Start(t, yaml, doortest.Options{Dir: d.Dir}) }
			m := fixture.NewModel(t, call(0, func() {}), call(1, func() { d.Kill9(); again() }), call(2, func() { d.Stop(); again() }), call(3, func() {}),
				func(fixture.Talk) fixture.Answer { return fixture.Say("done") })
			if said := at(t, m, t.TempDir(), entry(d)); said != "done" {
				t.Errorf("the program ended with %q", said)
			}
			want := []string{`{"turn":0}`, `{"turn":1}`, `{"turn":2}`, `{"turn":3}`}
			if got := m.Seen(); strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("the model saw %q, want %q", got, want)
			}
		})
	}
}
