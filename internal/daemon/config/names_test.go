package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/daemon/config"
)

// unusable lists names that a server cannot have. Several of them have the same nearest usable name, or that of another
// server.
var unusable = []string{"my server", "my.server", "my/server", "_my-server", "My Server", "_agent", "agent.", "INSTRUCTIONS!", "ü", "日本", "taken.", "TAKEN ", "../../taken",
	strings.Repeat("x", 65), strings.Repeat("x", 66), "launcher:taken", "launcher:x", "launcher:y", "a\nb"}

func named(names []string) string {
	var b strings.Builder
	b.WriteString("agent:\n  launchers:\n    x: {command: /usr/bin/agent}\n    y: {command: /usr/bin/agent, cwd: /srv}\nmcpServers:\n  taken: {command: npx}\n")
	for _, name := range names {
		fmt.Fprintf(&b, "  %q: {command: npx}\n", name)
	}
	return b.String()
}

// Each proposed name can be used, also when all of them are.
func TestServersHaveTheNamesThatAreProposed(t *testing.T) {
	t.Parallel()
	c, problems := config.Parse("doorward.yaml", "/etc/doorward", []byte(named(unusable)), options())
	if c == nil {
		t.Fatal(problems)
	}
	var proposed []string
	for _, p := range problems {
		if _, name, ok := strings.Cut(p.Problem, "rename it, for example to "); ok {
			proposed = append(proposed, name)
		}
	}
	if len(proposed) != len(unusable) {
		t.Fatalf("%d proposals for %d names: %v", len(proposed), len(unusable), problems)
	}
	c, problems = config.Parse("doorward.yaml", "/etc/doorward", []byte(named(proposed)), options())
	for _, p := range problems {
		if strings.HasPrefix(p.Key, "mcpServers") {
			t.Error(p)
		}
	}
	if c == nil || len(c.Servers) != len(proposed)+1 {
		t.Errorf("not all servers are there: %v", proposed)
	}
}

// A server with the name that a launcher has in lists leaves that launcher as it is, and gets none of its problems.
func TestALauncherIsNotRefusedForAServer(t *testing.T) {
	t.Parallel()
	c, problems := config.Parse("doorward.yaml", "/etc/doorward", []byte(named(unusable)), options())
	if c == nil {
		t.Fatal(problems)
	}
	if got := c.Agent.Launchers["y"].Refused; got != "" {
		t.Errorf("launcher y is refused: %s", got)
	}
	if got := c.Agent.Launchers["x"].Refused; !strings.HasPrefix(got, "it has no directory") {
		t.Errorf("launcher x is refused: %q", got)
	}
	for _, name := range unusable {
		if got := c.Servers[name].Refused; !strings.HasPrefix(got, "a server's name has") {
			t.Errorf("server %q is refused: %q", name, got)
		}
	}
}
