//go:build interop

package interop

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

// TestCodexHasItsToolsOnItsFirstTurn: Codex gives a server a second. Of the six servers
// behind Doorward one never answers, one takes longer to start, and one ends at once. Once
// the daemon has listed the others, also after its restart, the model is offered their tools
// on its first turn, and calls one. On a busy machine Codex may be late itself, so that
// it has three attempts.
func TestCodexHasItsToolsOnItsFirstTurn(t *testing.T) {
	for _, transport := range words("connect http") {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			recorder := fixture.Recorder(t, "legacy")
			late := append([]string{"sh", "-c", `sleep 4; exec "$@"`, "late"}, recorder...)
			yaml := house{servers: map[string]server{
				"one": stdio(recorder, nil), "two": stdio(recorder, nil), "three": stdio(recorder, nil),
				"hung": stdio(words("sleep 600"), nil), "slow": stdio(late, nil), "broken": stdio(words("false"), nil)}}.yaml(t)
			d := doortest.Start(t, yaml, doortest.Options{})
			listed(t, d, words("one two three slow"))
			d.Stop()
			d = doortest.Start(t, yaml, doortest.Options{Dir: d.Dir})
			for attempt := range 3 {
				missing := firstTurn(t, d, transport, words("one two three slow"))
				if missing == "" {
					return
				}
				t.Logf("attempt %d: %s", attempt, missing)
			}
			t.Error("Codex has not the tools on its first turn")
		})
	}
}

// firstTurn runs Codex with all servers of the daemon. Its model is to be offered the tools
// of those that are named, on its first turn, and to call one of the first.
func firstTurn(t *testing.T, d *doortest.Daemon, transport string, servers []string) (missing string) {
	t.Helper()
	codex := fixture.Agents()["Codex"]
	m := fixture.NewModel(t, use(codex.Prefix+servers[0]+"__echo", map[string]any{"turn": 0}),
		func(fixture.Talk) fixture.Answer { return fixture.Say("done") })
	door := doorAt(d, transport, "")
	door.Optional = true // as doorward install writes it
	at(t, codex, m, t.TempDir(), door)
	if got := m.Requests(); len(got) == 0 || got[0] != "turn-0" {
		return fmt.Sprintf("no tool of Doorward: %q", got)
	}
	for _, server := range servers {
		for _, tool := range words("wait seen exact echo ask") {
			if !slices.Contains(m.Talks()[0].Tools, codex.Prefix+server+"__"+tool) {
				return server + "/" + tool
			}
		}
	}
	inOrder(t, m.Seen(), 1)
	return ""
}

// listed waits until the daemon has listed the tools of some servers.
func listed(t *testing.T, d *doortest.Daemon, servers []string) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		out, err := d.Command("tools").Output()
		missing := slices.IndexFunc(servers, func(s string) bool { return !strings.Contains("\n"+string(out), "\n"+s+" ") })
		if err == nil && missing < 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not listed: %v\n%s", err, out)
		}
	}
}
