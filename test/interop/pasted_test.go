//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

// pastedLimit is the time that one server gets to start, on a machine that
// starts others at the same time. npx alone takes two seconds.
const pastedLimit = 4 * time.Minute

// TestPastedServersStart: a configuration that consists only of pasted entries starts
// each of these servers in the default sandbox, with the same tools as without
// Doorward.
func TestPastedServersStart(t *testing.T) {
	t.Parallel()
	p := fixture.PastedServers(t)
	d := startPasted(t, p, doortest.Options{})
	for name, server := range p.Servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := toolsOf(t, direct(t, p, server))
			got := toolsOf(t, connect(t, d, name))
			if len(want) == 0 {
				t.Error("no tools without Doorward")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("tools through Doorward (-direct +through):\n%s", diff)
			}
			shutIn(t, d, name)
		})
	}
}

// TestPastedMemoryRemembers: the graph of server-memory, which it stores in its own
// package in the cache of npx, is still there for the next daemon.
func TestPastedMemoryRemembers(t *testing.T) {
	t.Parallel()
	p := fixture.PastedServers(t)
	entity := filepath.Base(t.TempDir()) + time.Now().Format(time.RFC3339Nano)
	first := startPasted(t, p, doortest.Options{})
	say(t, first, entity, "memory", "create_entities", "--json", fmt.Sprintf(`{"entities":[{"name":%q,"entityType":"test","observations":[]}]}`, entity))
	first.Stop()
	second := startPasted(t, p, doortest.Options{Dir: first.Dir})
	say(t, second, entity, "memory", "open_nodes", "--json", fmt.Sprintf(`{"names":[%q]}`, entity))
	say(t, second, "", "memory", "delete_entities", "--json", fmt.Sprintf(`{"entityNames":[%q]}`, entity))
}

func startPasted(t *testing.T, p fixture.Pasted, o doortest.Options) *doortest.Daemon {
	t.Helper()
	o.Env = []string{"HOME=" + p.Home, "PATH=" + p.Path}
	return doortest.Start(t, "mcpServers: "+string(p.Text)+"\n", o)
}

// direct starts a server as a client without Doorward does.
func direct(t *testing.T, p fixture.Pasted, s fixture.PastedServer) *pipe {
	t.Helper()
	home := func(text string) string { return strings.ReplaceAll(text, "${HOME}", p.Home) }
	argv := []string{"env", "PATH=" + p.Path, s.Command} // env looks the command up in this PATH
	for _, arg := range s.Args {
		argv = append(argv, home(arg))
	}
	env := []string{"HOME=" + p.Home, "LANG=C.UTF-8", "TMPDIR=" + os.TempDir()}
	for name, value := range s.Env {
		env = append(env, name+"="+home(value))
	}
	return dialIn(t, p.Home, env, argv)
}

func connect(t *testing.T, d *doortest.Daemon, name string) *pipe {
	t.Helper()
	return dialIn(t, d.Dir, d.Env(), []string{d.Bin, "connect", name})
}

func dialIn(t *testing.T, dir string, env, argv []string) *pipe {
	t.Helper()
	// t.Context would end before the pipe is closed, and a server ends when its pipe is closed.
	ctx, cancel := context.WithTimeout(context.Background(), pastedLimit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, env, time.Second
	return dialCommand(t, cmd, false)
}

// toolsOf are the complete tools of all pages, by name.
func toolsOf(t *testing.T, p *pipe) map[string]any {
	t.Helper()
	all := make(map[string]any)
	for params := `{}`; ; {
		result, rpcError := p.call(t, "tools/list", params)
		if rpcError != nil {
			t.Fatalf("tools/list: %s", rpcError)
		}
		var page struct {
			Tools      []map[string]any
			NextCursor *string
		}
		if err := json.Unmarshal(result, &page); err != nil {
			t.Fatalf("tools/list: %v", err)
		}
		for _, tool := range page.Tools {
			all[tool["name"].(string)] = tool
		}
		if page.NextCursor == nil {
			return all
		}
		params = fmt.Sprintf(`{"cursor":%q}`, *page.NextCursor)
	}
}

// shutIn checks that a running server is contained by default.
func shutIn(t *testing.T, d *doortest.Daemon, name string) {
	t.Helper()
	out, err := d.Command("status", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var status struct {
		Servers []struct {
			Name, Sandbox string
			Processes     []struct{ Sandbox string }
		}
	}
	if err := json.Unmarshal(out, &status); err != nil {
		t.Fatal(err)
	}
	for _, s := range status.Servers {
		if s.Name == name && strings.HasPrefix(s.Sandbox, "contain") && len(s.Processes) > 0 {
			return
		}
	}
	t.Errorf("%s is not contained: %s", name, out)
}
