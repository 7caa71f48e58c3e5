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

// sixServers is a configuration of six servers: one never answers, one takes longer to
// start than Codex waits, and one ends at once.
func sixServers(t *testing.T) string {
	t.Helper()
	recorder := fixture.Recorder(t, "legacy")
	late := append([]string{"sh", "-c", `sleep 4; exec "$@"`, "late"}, recorder...)
	return house{servers: map[string]server{
		"one": stdio(recorder, nil), "two": stdio(recorder, nil), "three": stdio(recorder, nil),
		"hung": stdio(words("sleep 600"), nil), "slow": stdio(late, nil), "broken": stdio(words("false"), nil)}}.yaml(t)
}

// TestCodexHasToolsInItsFirstSession: with a daemon that has never listed its servers, the
// model is offered tools of servers that start within the second that Codex waits, and calls
// one. Starting takes longer on a busy machine, so the test runs alone and has eight attempts,
// each with a new daemon.
func TestCodexHasToolsInItsFirstSession(t *testing.T) {
	yaml := sixServers(t)
	for attempt := range 8 {
		d := doortest.Start(t, yaml, doortest.Options{})
		missing := firstTurn(t, d, "connect", nil)
		d.Stop()
		if missing == "" {
			return
		}
		t.Logf("attempt %d: %s", attempt, missing)
	}
	t.Error("Codex has no tools in its first session")
}

// TestCodexHasItsToolsOnItsFirstTurn: once the daemon has listed the servers, Codex's model
// is offered the tools of all servers that answer on its first turn, even after a restart of
// the daemon, although Codex waits only a second for a server. Codex may be late itself on a
// busy machine, so the test has six attempts.
func TestCodexHasItsToolsOnItsFirstTurn(t *testing.T) {
	for _, transport := range words("connect http") {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			yaml := sixServers(t)
			d := doortest.Start(t, yaml, doortest.Options{})
			listed(t, d, words("one two three slow"))
			d.Stop()
			d = doortest.Start(t, yaml, doortest.Options{Dir: d.Dir})
			for attempt := range 6 {
				missing := firstTurn(t, d, transport, words("one two three slow"))
				if missing == "" {
					return
				}
				t.Logf("attempt %d: %s", attempt, missing)
			}
			t.Error("Codex lacks tools on its first turn")
		})
	}
}

// firstTurn runs Codex with all servers of the daemon. Its model calls the first echo tool
// of its first turn. missing is a tool of the named servers that the turn lacks, or says
// what is wrong with the result that the model saw.
func firstTurn(t *testing.T, d *doortest.Daemon, transport string, servers []string) (missing string) {
	t.Helper()
	codex := fixture.Agents()["Codex"]
	m := fixture.NewModel(t, func(talk fixture.Talk) fixture.Answer {
		i := slices.IndexFunc(talk.Tools, func(name string) bool {
			return strings.HasPrefix(name, codex.Prefix) && strings.HasSuffix(name, "__echo")
		})
		if i < 0 {
			return fixture.Say("no tool")
		}
		return fixture.Use(talk.Tools[i], map[string]any{"turn": 0})
	}, func(fixture.Talk) fixture.Answer { return fixture.Say("done") })
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
	return disorder(m.Seen(), 1)
}

// listed waits until the daemon has listed the tools of some servers.
func listed(t *testing.T, d *doortest.Daemon, servers []string) {
	t.Helper()
	var out []byte
	var err error
	missing := func(s string) bool { return !strings.Contains("\n"+string(out), "\n"+s+" ") }
	if !doortest.Becomes(3*time.Minute, func() bool {
		out, err = d.Command("tools").Output()
		return err == nil && !slices.ContainsFunc(servers, missing)
	}) {
		t.Fatalf("not listed: %v\n%s", err, out)
	}
}
