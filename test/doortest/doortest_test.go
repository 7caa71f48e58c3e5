package doortest

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fake is a stand-in for the binary: a script that can print the start-up lines.
func fake(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "doorward")
	syscall.ForkLock.RLock() // so that no process started meanwhile holds it open for writing (ETXTBSY)
	err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStartReadsTheListenersAndStops(t *testing.T) {
	t.Parallel()
	bin := fake(t, `trap 'echo bye >&2; exit 0' INT TERM
printf 'listening http://127.0.0.1:41' >&2; printf '23\nlistening unix:/run/x.sock\nready\n' >&2
while :; do sleep 0.05; done`)
	d := Start(t, "mcpServers: {}\n", Options{Bin: bin})
	if d.URL != "http://127.0.0.1:4123" || d.Socket != "/run/x.sock" {
		t.Errorf("URL %q, socket %q", d.URL, d.Socket)
	}
	if d.MCP("notes") != "http://127.0.0.1:4123/mcp/notes" || d.MCP("") != "http://127.0.0.1:4123/mcp" {
		t.Errorf("endpoints %q %q", d.MCP("notes"), d.MCP(""))
	}
	yaml, err := os.ReadFile(d.Config)
	if err != nil || !strings.HasPrefix(string(yaml), "listen:") {
		t.Errorf("configuration without a listener on a free port: %q %v", yaml, err)
	}
	if code := d.Stop(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	d.WaitStderr("bye", time.Second)
}

func TestStartThatFailsIsSeen(t *testing.T) {
	t.Parallel()
	bin := fake(t, "echo 'refused 0.0.0.0:1: no credential' >&2; exit 1")
	d := Start(t, "listen: {http: []}\n", Options{Bin: bin, NoReady: true})
	if code := d.Wait(5 * time.Second); code != 1 {
		t.Errorf("exit status %d", code)
	}
	d.WaitStderr("refused", time.Second)
}

func TestEnvironmentHoldsNothingOfTheTesters(t *testing.T) {
	bin := fake(t, "env >&2; echo ready >&2; exec sleep 30")
	t.Setenv("DOORWARD_SESSION", "dws1.leak")
	t.Setenv("DOORWARD_TOKEN", "leaked-token-leaked")
	d := Start(t, "", Options{Bin: bin, Token: "given-token-given", Env: []string{"EXTRA=1"}})
	got := strings.Join(d.Stderr(), "\n")
	if strings.Contains(got, "leak") || !strings.Contains(got, "given-token-given") || !strings.Contains(got, "EXTRA=1") {
		t.Errorf("environment of the daemon:\n%s", got)
	}
	for _, pair := range d.Env() {
		if strings.HasPrefix(pair, "DOORWARD_TOKEN=") {
			t.Errorf("a client would inherit %s", pair)
		}
	}
	d.Kill9()
}
