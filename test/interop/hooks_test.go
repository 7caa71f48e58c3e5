//go:build interop

package interop

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

// hookCommand is a hook as it is written into a client's settings.
func hookCommand(d *doortest.Daemon, event string) []map[string]any {
	command := strings.Join(append(d.Env(), d.Bin, "agent hook "+event), " ")
	return []map[string]any{{"hooks": []map[string]any{{"type": "command", "command": "env " + command}}}}
}

// TestClaudeCodeHearsOfMailByItsHooks: a message that arrives while a real Claude Code
// works is reported to its model once, by the hook after the next tool use, as a count
// without any text of the message.
func TestClaudeCodeHearsOfMailByItsHooks(t *testing.T) {
	t.Parallel()
	d := doortest.Start(t, "agent: {enabled: true}\n", doortest.Options{})
	project := t.TempDir()
	write(t, filepath.Join(project, ".claude", "settings.json"), map[string]any{"hooks": map[string]any{
		"SessionStart": hookCommand(d, "session-start"), "UserPromptSubmit": hookCommand(d, "user-prompt-submit"),
		"PostToolUse": hookCommand(d, "post-tool-use"), "Stop": hookCommand(d, "stop")}})
	const notice = "1 unread message, newest 1. Call agent__inbox."

	m := fixture.NewModel(t,
		use("mcp__door__register", map[string]any{"name": "planner"}),
		func(fixture.Talk) fixture.Answer {
			if out, err := d.Command("agent", "send", "planner", "--subject", "secret subject", canary).CombinedOutput(); err != nil {
				t.Errorf("sending: %v\n%s", err, out)
			}
			return fixture.Use("mcp__door__list_peers", nil)
		},
		use("mcp__door__list_peers", nil),
		func(talk fixture.Talk) fixture.Answer { return fixture.Say("I was told: " + told(talk, notice)) },
	)
	if said := thinking(t, d, m, project, "agent"); said != "I was told: once" {
		t.Errorf("claude ends with %q", said)
	}
	for i, talk := range m.Talks() {
		if strings.Contains(talk.Said, canary) || strings.Contains(talk.Said, "secret subject") {
			t.Errorf("turn %d: a text of the message came by a hook: %s", i, talk.Said)
		}
		if i < 2 && strings.Contains(talk.Said, "unread") {
			t.Errorf("turn %d: told of mail before there was any: %s", i, talk.Said)
		}
	}
}

func told(talk fixture.Talk, notice string) string {
	switch n := strings.Count(talk.Said, notice); n {
	case 0:
		return "nothing in " + talk.Said
	case 1:
		return "once"
	}
	return "more than once in " + talk.Said
}
