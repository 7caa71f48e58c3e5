//go:build interop

package interop

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

// TestAgentProgramsGoOn: every call of each real program is answered at the first attempt
// after the daemon was killed, and after it was stopped, between two calls of one run. This
// holds over `doorward connect` and over HTTP.
func TestAgentProgramsGoOn(t *testing.T) {
	for name, a := range fixture.Agents() {
		for _, transport := range words("connect http") {
			t.Run(name+"/"+transport, func(t *testing.T) {
				t.Parallel()
				servers := house{servers: map[string]server{"recorder": stdio(fixture.Recorder(t, "legacy"), nil)}}
				yaml := strings.Replace(servers.yaml(t), "127.0.0.1:0", fmt.Sprintf("127.0.0.1:%d", doortest.FreePort(t)), 1)
				d := doortest.Start(t, yaml, doortest.Options{})
				call := func(turn int, before func()) fixture.Step {
					return func(fixture.Talk) fixture.Answer {
						before()
						return fixture.Use(a.Prefix+"echo", map[string]any{"turn": turn})
					}
				}
				again := func() { d = doortest.Start(t, yaml, doortest.Options{Dir: d.Dir}) }
				m := fixture.NewModel(t, call(0, func() {}), call(1, func() { d.Kill9(); again() }), call(2, func() { d.Stop(); again() }), call(3, func() {}),
					func(fixture.Talk) fixture.Answer { return fixture.Say("done") })
				if said := at(t, a, m, t.TempDir(), doorAt(d, transport, "recorder")); said != "done" {
					t.Errorf("the program ended with %q", said)
				}
				inOrder(t, m.Seen(), 4)
			})
		}
	}
}

// inOrder fails the test unless the model saw one result for each turn, in order. Programs
// add lines around a result or show it as JSON content. Their errors contain the arguments,
// so an argument alone is not enough.
func inOrder(t *testing.T, seen []string, turns int) {
	t.Helper()
	if wrong := disorder(seen, turns); wrong != "" {
		t.Error(wrong)
	}
}

// disorder says which result of the turns the model did not see in its place; empty: none.
func disorder(seen []string, turns int) string {
	if len(seen) != turns {
		return fmt.Sprintf("the model saw %d results: %q", len(seen), seen)
	}
	for turn, text := range seen {
		want := fmt.Sprintf(`{"turn":%d}`, turn)
		content := `"type":"text","text":` + strconv.Quote(want)
		if !slices.Contains(strings.Split(text, "\n"), want) && !strings.Contains(text, content) {
			return fmt.Sprintf("turn %d: the model saw %q, want %s", turn, text, want)
		}
	}
	return ""
}
