package daemon

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/downstream/authn"
	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/messaging/spawn"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream/pin"
	"github.com/doorward/doorward/internal/upstream/process"
)

// agents starts agents with the launchers of the configuration.
type agents struct {
	o         Options
	runner    *process.Runner
	pins      *pin.Book
	daemonKey string // identifies the daemon to a started agent
	// look searches the output of a started agent for protected text.
	look       func(by *spawn.Running, text string, whole io.Reader) (out string, keep, blocked bool)
	manager    atomic.Pointer[spawn.Manager] // nil: messaging is off
	setting    sync.Mutex                    // held while launchers are put into force
	latest     *config.Config                // of the last reload; nil: there was none
	configured atomic.Pointer[map[string]*config.Launcher]
}

// open makes the manager, and ends in the book the agents that an earlier run of this daemon
// left open. note makes the record of a start or an end.
func (g *agents) open(book spawn.Book, note mail.Note[mail.Spawn]) error {
	var err error
	o := spawn.Options{Runner: g.runner, Book: book, TokenPrefix: authn.SpawnToken, Look: g.look, Note: note, Log: g.o.Log}
	if o.StateDir, err = filepath.Abs(g.o.StateDir); err != nil {
		return fmt.Errorf("starting agents: %w", err)
	}
	if o.RuntimeDir, err = filepath.Abs(cmp.Or(g.o.RuntimeDir, g.o.StateDir)); err != nil {
		return fmt.Errorf("starting agents: %w", err)
	}
	o.Socket, o.DaemonKey = socketPath(g.o), g.daemonKey
	m := spawn.New(o)
	if err := m.Recover(context.Background()); err != nil {
		return fmt.Errorf("ending the agents of an earlier run: %w", err)
	}
	go spawn.Sweep(m)
	g.begin(m)
	return nil
}

// begin puts the manager into use with the launchers of the latest configuration.
func (g *agents) begin(m *spawn.Manager) {
	g.setting.Lock()
	defer g.setting.Unlock()
	g.manager.Store(m)
	g.use(m, cmp.Or(g.latest, g.o.Config))
}

// printed searches the output of a started agent for text that must not leave.
func (m *instructing) printed(by *spawn.Running, text string, whole io.Reader) (out string, keep, blocked bool) {
	fact := func(name, value string) principal.Fact {
		return principal.Fact{Name: name, Value: value, Grade: principal.Verified}
	}
	who := principal.New(principal.Spawn(by.ID), fact("launcher", by.Launcher), fact("parent", by.Parent.Name())).WithLocal().WithParent(by.Parent)
	return m.server.Printed(gate.Act{Who: who, Server: agent.ServerName, Name: "result"}, text, whole)
}

// close ends all agents. The book must still be open.
func (g *agents) close() {
	if m := g.manager.Load(); m != nil {
		ctx, cancel := context.WithTimeout(context.Background(), agentsTime)
		defer cancel()
		m.Close(ctx)
	}
}

// agentsTime is how long started agents may take to end when the daemon stops.
const agentsTime = 4 * time.Second

// socketPath returns the path of the Unix socket; empty: there is none.
func socketPath(o Options) string {
	path := o.Config.Listen.Unix
	switch path {
	case "off":
		return ""
	case "auto", "":
		path = filepath.Join(o.RuntimeDir, listen.SocketName)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	return abs
}

// launchers returns the launchers of a configuration, each with its pin.
func (g *agents) launchers(c *config.Config) map[string]*spawn.Launcher {
	all := make(map[string]*spawn.Launcher, len(c.Agent.Launchers))
	for name, l := range c.Agent.Launchers {
		all[name] = g.launcher(c, name, l)
	}
	return all
}

func (g *agents) launcher(c *config.Config, name string, l *config.Launcher) *spawn.Launcher {
	out := &spawn.Launcher{Name: name, Path: l.Path, Cwd: l.Cwd, Roots: l.Roots, Rights: l.Rights, Models: l.Models,
		Seconds: l.Budget.Seconds, Children: l.Budget.Children, Messages: l.Budget.Messages, Output: int64(l.Output), Refused: l.Refused,
		Env: make(map[string]string, len(l.Env))}
	p := &pin.Process{Path: l.Path, Dir: l.Cwd}
	for _, a := range l.Args {
		out.Args = append(out.Args, a.Reveal())
	}
	p.Args = out.Args
	for name, v := range l.Env {
		out.Env[name] = v.Reveal()
		p.Env = append(p.Env, name)
	}
	// The sandbox is that of a server with the same keys: it contains the paths that args and
	// env name.
	out.Sandbox = sandboxOf(c, launcherHome(name), &config.Server{Kind: "stdio", Args: l.Args, Env: l.Env, Doorward: config.Handling{
		Sandbox: l.Sandbox, Read: l.Read, Write: l.Write, Network: l.Network, Limits: l.Limits}})
	if l.Refused == "" {
		out.Approved = g.pins.Guard(config.LauncherPrefix+name, l.Trust == "manual", p).Start
	}
	return out
}

// tree returns the started agent whose process tree contains a Unix peer; empty: none.
func (g *agents) tree(c *attest.Credentials) string {
	m := g.manager.Load()
	if m == nil || g.runner.Alive() == 0 || !peer.DescendantOf(c.PID, int32(os.Getpid())) {
		return ""
	}
	return m.TreeOf(int(c.PID))
}

// authenticated returns a started agent for authentication; nil: there is none.
func (g *agents) authenticated(id string) *authn.Spawned {
	m := g.manager.Load()
	if m == nil {
		return nil
	}
	r := m.Find(id)
	if r == nil {
		return nil
	}
	return &authn.Spawned{ID: r.ID, Launcher: r.Launcher, Rights: r.Rights, Parent: r.Parent, Digest: r.Digest}
}

// trust returns what is withheld of one launcher, or of all.
func (g *agents) trust(one string) []admin.Trust {
	var all []admin.Trust
	launchers := g.launched()
	for _, name := range slices.Sorted(maps.Keys(launchers)) {
		l, full := launchers[name], config.LauncherPrefix+name
		if one != "" && one != full {
			continue
		}
		t := admin.Trust{Server: full, Withheld: g.pins.Withheld(full), Reason: l.Refused}
		if t.Withheld == nil {
			t.Withheld = []pin.Withheld{}
		}
		if one != "" || len(t.Withheld) > 0 {
			all = append(all, t)
		}
	}
	return all
}

// launched returns the launchers in force.
func (g *agents) launched() map[string]*config.Launcher {
	if all := g.configured.Load(); all != nil {
		return *all
	}
	return nil
}

// set puts the launchers of a configuration into force. Running agents are not affected.
// Without a database there is no manager yet, and open uses the latest ones.
func (g *agents) set(c *config.Config) {
	g.setting.Lock()
	defer g.setting.Unlock()
	g.latest = c
	if m := g.manager.Load(); m != nil {
		g.use(m, c)
	}
}

func (g *agents) use(m *spawn.Manager, c *config.Config) {
	g.configured.Store(&c.Agent.Launchers)
	m.SetLaunchers(g.launchers(c))
}

// lookAt returns what a launcher would start, without starting or approving it.
func (g *agents) lookAt(full string) (admin.Trust, error) {
	all := g.trust(full)
	if len(all) == 0 {
		return admin.Trust{}, admin.ErrNotFound
	}
	return all[0], nil
}
