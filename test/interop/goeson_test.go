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

// TestAgentProgramsGoOn: in one run of each real program, over `doorward connect` and over
// HTTP, the daemon is killed and then ended between calls of a tool. Each call after that
// is answered, at the first attempt.
func TestAgentProgramsGoOn(t *testing.T) {
	for name, a := range fixture.Agents() {
		for _, transport := range words("connect http") {
			t.Run(name+"/"+transport, func(t *testing.T) {
				t.Parallel()
				servers := house{servers: map[string]server{"recorder": stdio(fixture.Recorder(t, "legacy"), nil)}}
				yaml := strings.Replace(servers.yaml(t), "127.0.0.1:0", fmt.Sprintf("127.0.0.1:%d", fixture.FreePort(t)), 1)
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

// inOrder: the results are those of the calls with these turns, one each. Programs put
// lines around what a tool answered, or show the content with it, and put into errors what
// the tool was called with.
func inOrder(t *testing.T, seen []string, turns int) {
	t.Helper()
	if len(seen) != turns {
		t.Errorf("the model saw %d results: %q", len(seen), seen)
		return
	}
	for turn, text := range seen {
		want := fmt.Sprintf(`{"turn":%d}`, turn)
		content := `"type":"text","text":` + strconv.Quote(want)
		if !slices.Contains(strings.Split(text, "\n"), want) && !strings.Contains(text, content) {
			t.Errorf("turn %d: the model saw %q, want %s", turn, text, want)
		}
	}
}
