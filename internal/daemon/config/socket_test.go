package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/doorward/doorward/internal/daemon/config"
)

// TestTheSocketIsReadAloneFromTheFile: the path of the socket does not depend on what else the file
// has, and is that of Load where the file loads.
func TestTheSocketIsReadAloneFromTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	vars := env("RUN", "/run/x")
	for value, want := range map[string]string{
		"/run/a.sock": "/run/a.sock", "b.sock": filepath.Join(dir, "b.sock"), "${RUN}/c.sock": "/run/x/c.sock", "off": "off", "auto": "auto",
		"${UNSET}/d.sock": "auto", "${keyring:a/b}": "auto", "[x]": "auto", "''": "auto", "~/x": "auto", "": "auto",
	} {
		for _, rest := range []string{
			"", "lgo: {}\n", "log: {level: no}\n", "limits: 5\n", "store: {postgres: '${file:/no/such/file}'}\n",
			"mcpServers:\n  a: {command: x}\n  A: {command: x}\n", "log: {}\nlog: {}\n", "x: &y 1\nz: *y\n",
			"mcpServers: {a: {command: x, env: {A: '${keyring:a/b}'}}}\n",
		} {
			for name, text := range map[string]string{"before": rest + "listen:\n  unix: " + value + "\n", "after": "listen:\n  htp: []\n  unix: " + value + "\n" + rest} {
				file := filepath.Join(dir, "doorward.yaml")
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if got := config.Socket(file, vars); got != want {
					t.Errorf("%s %q: %s, want %s", name, text, got, want)
				}
				with := config.Options{Env: vars}
				if c, _ := config.Load(file, with); c != nil && c.Listen.Unix != want {
					t.Errorf("%q: Load has %s, want %s", text, c.Listen.Unix, want)
				}
			}
		}
	}
	for name, text := range map[string]string{"empty": "", "no listen": "log: {}\n", "no mapping": "listen: []\n", "a list": "[]\n", "broken": "listen: {unix: /x\n"} {
		file := filepath.Join(dir, "doorward.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := config.Socket(file, vars); got != "auto" {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, path := range []string{"", filepath.Join(dir, "none.yaml"), dir} {
		if got := config.Socket(path, vars); got != "auto" {
			t.Errorf("%q: %s", path, got)
		}
	}
}
