package onboard_test

import (
	"strings"
	"testing"
)

// TestAnAddressBesideACommandHasANote: of a server with a command and an address, which the
// configuration does not allow, the command is imported, and a note says that the address is not.
// The note does not repeat the address, which may hold a token.
func TestAnAddressBesideACommandHasANote(t *testing.T) {
	t.Parallel()
	for client, text := range map[string]string{
		"claude-code": `{"mcpServers": {"a": {"command": "x", "url": "https://h/mcp?key=secret"}}}`,
		"gemini":      `{"mcpServers": {"a": {"command": "x", "httpUrl": "https://h/mcp?key=secret"}}}`,
		"opencode":    `{"mcp": {"a": {"type": "local", "command": ["x"], "url": "https://h/mcp?key=secret"}}}`,
	} {
		servers, notes := imported(t, client, text)
		a, _ := servers["a"].(map[string]any)
		if a["command"] != "x" || a["url"] != nil {
			t.Errorf("%s: %v", client, a)
		}
		if !strings.HasPrefix(notes, "a of "+client+": its address is not imported") || strings.Contains(notes, "secret") {
			t.Errorf("%s: notes %q", client, notes)
		}
	}
}
