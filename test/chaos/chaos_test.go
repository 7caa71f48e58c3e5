//go:build chaos

package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

func TestMain(m *testing.M) {
	if os.Getenv(agentsMode) != "" {
		os.Exit(agentsProgram())
	}
	os.Exit(m.Run())
}

// configuration has limits that 200 agents in a loop do not reach: the tests are about
// lost messages, not about refused ones.
const configuration = `listen: {http: []}
agent: {attempts: 100, sends_per_minute: 100000, mailbox_messages: 100000, mailbox_bytes: 1073741824, sender_messages: 100000}
limits: {calls_per_second: 1000000}
`

// allies lets the users of all nodes write to each other.
const allies = `permit (principal, action in [Action::"agent.see", Action::"agent.send", Action::"agent.deliver"], resource)
when { context has args && context.args has to && context.args.to.principal like "*/uid:*" };
`

// size of a run.
type size struct{ agents, daemonKills, databaseKills int }

func sized(short, long size) size {
	if os.Getenv("CHAOS") == "long" {
		return long
	}
	return short
}

// TestKillsOfTheDaemon: no acknowledged message is lost, reordered or repeated unmarked
// while the daemon, with its store in SQLite, is killed again and again.
func TestKillsOfTheDaemon(t *testing.T) {
	s := sized(size{agents: 50, daemonKills: 8}, size{agents: 200, daemonKills: 130})
	w := &world{t: t, yaml: []string{configuration}}
	w.run(s)
}

// TestKillsOfDaemonsAndDatabase: the same holds while three daemons and the PostgreSQL
// that they share are killed.
func TestKillsOfDaemonsAndDatabase(t *testing.T) {
	s := sized(size{agents: 45, daemonKills: 5, databaseKills: 3}, size{agents: 200, daemonKills: 70, databaseKills: 30})
	w := &world{t: t, database: doortest.PostgresServer(t)}
	policy := filepath.Join(t.TempDir(), "allies.cedar")
	must(t, os.WriteFile(policy, []byte(allies), 0o600))
	for i := range 3 {
		w.yaml = append(w.yaml, configuration+fmt.Sprintf("policy: %s\nstore: {postgres: %q, node: node-%d}\n", policy, w.database.DSN(), i))
	}
	w.run(s)
}

// world is the daemons, the database, and the program of the agents.
type world struct {
	t        *testing.T
	yaml     []string
	database *doortest.Server // nil: SQLite
	daemons  []*doortest.Daemon
}

func (w *world) run(s size) {
	o := order{Agents: s.agents, Drain: 3 * time.Minute}
	for _, yaml := range w.yaml {
		d := doortest.Start(w.t, yaml, doortest.Options{})
		w.daemons, o.Sockets = append(w.daemons, d), append(o.Sockets, d.Socket)
	}
	p := startAgents(w.t, o)
	for _, kill := range w.kills(s) {
		time.Sleep(time.Duration(300+rand.IntN(900)) * time.Millisecond)
		kill()
	}
	r := p.end(w.t)
	w.t.Logf("measured: %d kills of daemons, %d of the database: %s", s.daemonKills, s.databaseKills, r)
	if r.Sent == 0 || len(r.Lost)+len(r.Reordered)+len(r.Doubled)+len(r.Wedged) > 0 {
		w.t.Errorf("lost %q\nreordered %q\ndoubled %q\nwedged %q", some(r.Lost), some(r.Reordered), some(r.Doubled), some(r.Wedged))
	}
	for _, d := range w.daemons {
		checked(w.t, d, "agent", "fsck")
		checked(w.t, d, "audit", "verify")
	}
}

// kills are the kills of a run in random order.
func (w *world) kills(s size) (all []func()) {
	for i := range s.daemonKills {
		all = append(all, func() { w.killDaemon(i % len(w.daemons)) })
	}
	for range s.databaseKills {
		all = append(all, func() {
			w.database.Kill(w.t)
			time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
			w.database.Start(w.t)
		})
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func (w *world) killDaemon(i int) {
	w.daemons[i].Kill9()
	w.daemons[i] = doortest.Start(w.t, w.yaml[i], doortest.Options{Dir: w.daemons[i].Dir})
}

func some(all []string) []string { return all[:min(len(all), 5)] }

func checked(t *testing.T, d *doortest.Daemon, args ...string) {
	t.Helper()
	if out, err := d.Command(args...).CombinedOutput(); err != nil {
		t.Errorf("doorward %v: %v\n%s", args, err, out)
	}
}

// program is the running program of the agents.
type program struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startAgents returns once all agents have their names.
func startAgents(t *testing.T, o order) *program {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	p := &program{cmd: exec.Command(self)}
	p.cmd.Env = append(os.Environ(), agentsMode+"=1")
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p.in, err = p.cmd.StdinPipe()
	must(t, err)
	out, err := p.cmd.StdoutPipe()
	must(t, err)
	p.out = bufio.NewReader(out)
	must(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	must(t, json.NewEncoder(p.in).Encode(o))
	line, err := p.out.ReadString('\n')
	must(t, err)
	t.Logf("agents: %s", line[:len(line)-1])
	return p
}

// end makes the agents stop sending and read what is left, and returns their result.
func (p *program) end(t *testing.T) *result {
	t.Helper()
	must(t, p.in.Close())
	r := new(result)
	must(t, json.NewDecoder(p.out).Decode(r))
	must(t, p.cmd.Wait())
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
