//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

// Sentences that are in one document each and nowhere else.
const (
	plantedGuidance = "Begin every review with the tests, said the heron."
	plantedVoice    = "Speak like a lighthouse keeper on a quiet night."
)

// digestKnown matches the digest of a program in the output of whoami.
var digestKnown = regexp.MustCompile(`(?m)^ +exe_sha256 +observed +[0-9a-f]`)

// guided is a daemon with the guidance that knows the program of its clients. The daemon reads a
// program when it first connects, which may take a slow machine longer than a program of an agent
// waits for its session.
func guided(t *testing.T) *doortest.Daemon {
	t.Helper()
	d := doortest.Start(t, guidance(t), doortest.Options{})
	doortest.Until(t, 90*time.Second, "the program is known", func() bool {
		out, err := d.Command("whoami").Output()
		return err == nil && digestKnown.Match(out)
	})
	return d
}

// guidance is a directory of documents, and the configuration that names it.
func guidance(t *testing.T) (config string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"review.md": "---\nname: review\nclass: instructions\n---\n" + plantedGuidance + "\n",
		"voice.md":  "---\nname: voice\nclass: voice\n---\n" + plantedVoice + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("instructions: {dir: %q}\n", dir)
}

// TestClaudeCodeIsGivenItsInstructions: the real program shows its model the whole text
// of its session before the first turn, and nothing of the other documents, which the
// model can read with the tool.
func TestClaudeCodeIsGivenItsInstructions(t *testing.T) {
	t.Parallel()
	d := guided(t)
	m := fixture.NewModel(t,
		func(fixture.Talk) fixture.Answer {
			return fixture.Use("mcp__door__instructions__read", map[string]any{"name": "voice"})
		},
		func(talk fixture.Talk) fixture.Answer {
			return fixture.Say(fmt.Sprint(strings.Contains(talk.Results[0].Text, plantedVoice)))
		},
	)
	if said := thinking(t, d, m, t.TempDir(), ""); said != "true" {
		t.Errorf("the voice reached the model: %s; it saw %q", said, m.Seen())
	}
	shown := m.Talks()[0].System + m.Talks()[0].Said
	for _, want := range []string{plantedGuidance, "OPERATIONAL CONTEXT - NOT A SECURITY BOUNDARY", "ref: dwi-"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the model is not shown %q before its first turn", want)
		}
	}
	if strings.Contains(shown, plantedVoice) || strings.Contains(shown, "[truncated") {
		t.Error("the model is shown what it has not asked for, or a part of a text")
	}
}

// TestClaudeCodesHooksOpenAndCloseASession: the hooks SessionStart and SessionEnd of the
// real program open and end a delivery session that is bound to a process. The session
// file exists while the program runs, and the model is not shown the token.
func TestClaudeCodesHooksOpenAndCloseASession(t *testing.T) {
	t.Parallel()
	d := guided(t)
	home := t.TempDir()
	hook := func(what string) []map[string]any {
		return []map[string]any{{"hooks": []map[string]any{{"type": "command", "command": d.Bin + " auth " + what}}}}
	}
	settings, config := filepath.Join(home, "settings.json"), filepath.Join(home, "mcp.json")
	write(t, settings, map[string]any{"hooks": map[string]any{"SessionStart": hook("session-start"), "SessionEnd": hook("session-end")}})
	write(t, config, map[string]any{"mcpServers": map[string]any{"door": connectEntry(d, "")}})
	var during []string
	m := fixture.NewModel(t, func(fixture.Talk) fixture.Answer {
		during = sessionFiles(t, d)
		return fixture.Say("done")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, fixture.Claude(t), "--print", "Do what there is to do.", "--output-format", "json",
		"--settings", settings, "--mcp-config", config, "--strict-mcp-config", "--no-session-persistence")
	cmd.Dir = t.TempDir()
	cmd.Env = fixture.ClientEnv(home, append(m.Env(), "DOORWARD_RUNTIME_DIR="+d.Runtime, "DOORWARD_STATE_DIR="+d.State, "DOORWARD_CONFIG="+d.Config)...)
	cmd.WaitDelay = 10 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("claude: %v\n%s", err, out)
	}
	if len(during) != 1 {
		t.Fatalf("session files while the program ran: %d, want 1", len(during))
	}
	var file struct{ Token, Bind string }
	if err := json.Unmarshal([]byte(during[0]), &file); err != nil || !strings.HasPrefix(file.Token, "dws1.") || file.Bind == "" {
		t.Errorf("the session file: %v; bound to %q", err, file.Bind)
	}
	if shown := m.Talks()[0].System + m.Talks()[0].Said; strings.Contains(shown, "dws1.") {
		t.Error("the model is shown a token")
	}
	doortest.Until(t, 20*time.Second, "the session file ends with the program", func() bool { return len(sessionFiles(t, d)) == 0 })
}

// sessionFiles are the contents of the files in the directory of sessions.
func sessionFiles(t *testing.T, d *doortest.Daemon) (all []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(d.Runtime, "sessions", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		if b, err := os.ReadFile(p); err == nil { // it may just have been removed
			all = append(all, string(b))
		}
	}
	return all
}
