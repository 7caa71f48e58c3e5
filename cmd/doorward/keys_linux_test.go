package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A daemon refuses every key file of the state directory that others can read, that is a
// link or that has a second name, and names the file. The files are those that a daemon
// with all features on creates.
func TestEveryKeyOfTheStateDirectoryIsJudged(t *testing.T) {
	t.Parallel()
	home := shortDir(t)
	env := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}
	config := filepath.Join(home, "own.yaml")
	if err := os.WriteFile(config, []byte("listen: {http: []}\nmcpServers: {out: {url: \"https://mcp.example.com/\"}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(home, ".local/state/doorward")
	says := func(want string) (log string) {
		said := newLines("")
		cmd := exec.Command("doorward", "serve", "--config", config)
		cmd.Dir, cmd.Env, cmd.Stderr = home, env, said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said.take(regexp.MustCompile(want), mailSoon)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // it may have ended by itself, with a status of its own
		return said.String()
	}
	says(`^ready$`)
	var keys []string
	for _, pattern := range []string{"*.key", "*.keys"} {
		found, err := filepath.Glob(filepath.Join(state, pattern))
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, found...)
	}
	for _, must := range []string{"audit.key", "daemon.key", "node.key", "seal.key", "session.keys", "signin.key"} {
		if !slices.Contains(keys, filepath.Join(state, must)) {
			t.Fatalf("there is no %s among %v", must, keys)
		}
	}
	for _, key := range keys {
		before, err := os.ReadFile(key)
		if err != nil {
			t.Fatal(err)
		}
		for name, spoil := range map[string]func() error{
			"for all":       func() error { return os.Chmod(key, 0o644) },
			"for the group": func() error { return os.Chmod(key, 0o640) },
			"a link":        func() error { return errors.Join(os.Rename(key, key+".moved"), os.Symlink(key+".moved", key)) },
			"a second name": func() error { return os.Link(key, key+".moved") },
		} {
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			log := says(`it cannot be trusted`)
			if !strings.Contains(log, key+": it cannot be trusted: ") {
				t.Errorf("%s, %s: %s", filepath.Base(key), name, log)
			}
			if err := errors.Join(os.RemoveAll(key+".moved"), os.RemoveAll(key), os.WriteFile(key, before, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if log := says(`^ready$`); strings.Contains(log, "cannot be trusted") || !strings.Contains("\n"+log+"\n", "\nready\n") {
		t.Errorf("mended: %s", log)
	}
}
