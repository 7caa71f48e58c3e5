package config_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
)

var update = flag.Bool("update", false, "rewrite the expected problems and the reference page")

// password must never be seen in a problem or in a printed configuration.
const password = "hunter2-correct-horse"

// vars is the environment of the tests.
var vars = map[string]string{
	"HOME": "/home/ada", "PATH": "/usr/bin:/bin", "API_KEY": password, "DOCS_TOKEN": password, "HOST": "mcp.example.com",
	"LINES": "a\nb",
}

// options look nothing up outside the test: every bare command is in /usr/bin, except missing.
func options() config.Options {
	return config.Options{
		Env: func(name string) (string, bool) { v, ok := vars[name]; return v, ok },
		CheckURL: func(raw string, allowPrivate bool) error {
			if strings.Contains(raw, "//127.") && !allowPrivate {
				return errors.New("the address is loopback; set allow_private to allow it")
			}
			return nil
		},
		ResolveCommand: func(command, pathEnv string) (string, error) {
			switch {
			case command == "missing":
				return "", fmt.Errorf("no such program on PATH")
			case filepath.IsAbs(command):
				return command, nil
			}
			first, _, _ := strings.Cut(pathEnv, ":")
			return filepath.Join(first, command), nil
		},
		File: func(path string) (secret.Value, error) {
			if path != "/run/secrets/key" {
				return secret.Value{}, fmt.Errorf("reading a secret: open %s: no such file", path)
			}
			return secret.New(password), nil
		},
		Keyring: func(service, name string) (secret.Value, error) {
			return secret.Value{}, fmt.Errorf("reading %s/%s from the keyring: %w", service, name, secret.ErrKeyring)
		},
	}
}

// parse reads content as if it stood in /etc/doorward.
func parse(name, content string) (*config.Config, []config.Problem) {
	return config.Parse(name, "/etc/doorward", []byte(content), options())
}

// show formats problems as the golden files have them.
func show(c *config.Config, ps []config.Problem) string {
	var b strings.Builder
	for _, p := range ps {
		fmt.Fprintf(&b, "%s", p)
		if p.Server != "" {
			fmt.Fprintf(&b, " [server %s]", p.Server)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "fatal %v, ok %v\n", config.Fatal(ps), config.OK(ps))
	if c == nil != config.Fatal(ps) {
		b.WriteString("a Config goes with a fatal problem, or none without\n")
	}
	return b.String()
}

// Each file of testdata/problems has a configuration and all problems that Parse reports for it.
func TestProblems(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/problems/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			ar, err := txtar.ParseFile(path)
			if err != nil || len(ar.Files) == 0 {
				t.Fatalf("reading %s: %v", path, err)
			}
			in := ar.Files[0]
			got := show(parse(in.Name, string(in.Data)))
			if *update {
				ar.Files = []txtar.File{in, {Name: "want", Data: []byte(got)}}
				if err := os.WriteFile(path, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if len(ar.Files) != 2 {
				t.Fatalf("%s has %d parts, want a configuration and want", path, len(ar.Files))
			}
			if diff := cmp.Diff(string(ar.Files[1].Data), got); diff != "" {
				t.Errorf("problems differ (-want +got):\n%s", diff)
			}
			if strings.Contains(got, password) {
				t.Error("a problem repeats a secret")
			}
		})
	}
}
