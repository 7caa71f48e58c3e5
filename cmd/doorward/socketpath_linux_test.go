package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// counted listens on a socket, ends each connection and counts them.
func counted(t *testing.T, path string) *atomic.Int32 {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	n := &atomic.Int32{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n.Add(1)
			c.Close()
		}
	}()
	return n
}

// TestClientsFindTheSocketInAnyConfiguration: commands connect to the path in listen.unix, whatever else
// the configuration has, and ask no keyring for the secrets of servers.
func TestClientsFindTheSocketInAnyConfiguration(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a keyring":        "mcpServers: {a: {command: x, env: {A: '${keyring:doorward/a}'}}}\n",
		"a misspelt key":   "lgo: {}\n",
		"an unset secret":  "store: {postgres: '${NO_SUCH_VARIABLE}'}\n",
		"a missing file":   "store: {postgres: '${file:/no/such/file}'}\n",
		"names by case":    "mcpServers: {a: {command: x}, A: {command: x}}\n",
		"nothing else":     "",
		"a retention of 5": "audit: {retain: {days: five}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "dw") // the path of a socket is short
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			file, bus := filepath.Join(dir, "doorward.yaml"), counted(t, filepath.Join(dir, "bus"))
			if err := os.WriteFile(file, []byte("listen: {unix: s}\n"+text), 0o600); err != nil {
				t.Fatal(err)
			}
			socket := counted(t, filepath.Join(dir, "s"))
			for _, args := range [][]string{{"status"}, {"tools"}, {"connect"}, {"agent", "hook", "session-start"}} {
				before := socket.Load()
				cmd := exec.Command("doorward", append(args, "--config", file)...)
				cmd.Env = []string{"HOME=" + dir, "GORACE=atexit_sleep_ms=0", "DBUS_SESSION_BUS_ADDRESS=unix:path=" + filepath.Join(dir, "bus")}
				cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}},"session_id":"s","hook_event_name":"SessionStart","cwd":"/"}` + "\n")
				out, err := cmd.CombinedOutput()
				if socket.Load() == before {
					t.Errorf("%v did not connect: %v %s", args, err, out)
				}
			}
			if n := bus.Load(); n > 0 {
				t.Errorf("the keyring was asked %d times", n)
			}
		})
	}
}
