package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A SIGHUP while the daemon starts does not end it: a manager of services may ask for a reload
// at any time.
func TestAReloadDuringTheStartEndsNothing(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "dwhup") // a short path, for the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	config := filepath.Join(dir, "doorward.yaml")
	if err := os.WriteFile(config, []byte("listen: {http: []}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("doorward", "serve", "--config", config, "--state-dir", filepath.Join(dir, "s"), "--runtime-dir", filepath.Join(dir, "r"))
	cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(said)
	var all []string
	for lines.Scan() && lines.Text() != "ready" {
		all = append(all, lines.Text())
		_ = cmd.Process.Signal(syscall.SIGHUP) // if the daemon has ended, it does not get ready
	}
	if lines.Text() != "ready" || len(all) == 0 {
		t.Errorf("the daemon is not ready after %d signals:\n%s", len(all), strings.Join(all, "\n"))
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	for lines.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
