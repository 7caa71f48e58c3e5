package authn

import (
	"errors"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/trust/principal"
)

const (
	agentToken   = SpawnToken + "the-token-of-the-agent-0123456789"
	siblingToken = SpawnToken + "the-token-of-a-sibling-0123456789"
)

// agents are the started agents of a world.
type agents struct {
	mu      sync.Mutex
	running map[string]*Spawned
}

func (g *agents) find(id string) *Spawned {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running[id]
}

func (g *agents) end(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, id)
}

// withAgents is a world with two started agents: A, started by the token `parent`, and B, a
// sibling started by the user.
func withAgents(t *testing.T) (*world, *agents, *principal.Principal) {
	t.Helper()
	w := newWorld(t)
	token, _ := mustNew(t, w.store, "parent", time.Hour, "agent")
	g := &agents{running: map[string]*Spawned{}}
	w.Authenticator = New(Options{UID: me(), Env: secret.New(envToken), File: w.file, Store: w.store, Now: w.clock.Now, Spawned: g.find})
	parent, err := w.Authenticate(&Caller{Loopback: true, Enforce: true, Listener: "l"}, []string{"Bearer " + token})
	if err != nil {
		t.Fatal(err)
	}
	g.running["A"] = &Spawned{ID: "A", Launcher: "helper", Rights: []string{"agent", "tool:notes/read"}, Parent: parent, Digest: digestOf(agentToken)}
	g.running["B"] = &Spawned{ID: "B", Parent: principal.New(principal.UID(me())).WithLocal(), Digest: digestOf(siblingToken)}
	return w, g, parent
}

func TestAnAgentIsIdentifiedByTreeAndToken(t *testing.T) {
	t.Parallel()
	w, _, parent := withAgents(t)
	creds := peerOf(t, func(*exec.Cmd) {})
	p, err := w.Authenticate(&Caller{Unix: creds, Spawn: "A"}, []string{"Bearer " + agentToken})
	if err != nil {
		t.Fatal(err)
	}
	if p.Name() != "spawn:A" || !p.Local() || p.Parent() != parent {
		t.Errorf("%s, local %v, parent %s", p.Name(), p.Local(), p.Parent().Name())
	}
	g := grades(p)
	for name, want := range map[string]string{"scope": "verified", "launcher": "verified", "parent": "verified",
		"uid": "attested", "gid": "attested", "groups": "attested", "pid": "observed"} {
		if g[name] != want {
			t.Errorf("fact %s is graded %q, want %q", name, g[name], want)
		}
	}
	for name, want := range map[string]string{"scope": "agent,tool:notes/read", "launcher": "helper", "parent": "token:parent", "instance": creds.Instance} {
		if f, _ := p.Fact(name); f.Value != want {
			t.Errorf("fact %s is %q, want %q", name, f.Value, want)
		}
	}
}

// An agent in namespaces of its own has its instance as a fact, and is identified by it.
func TestAForeignAgentKeepsItsInstance(t *testing.T) {
	t.Parallel()
	w, g, _ := withAgents(t)
	creds := peerOf(t, func(*exec.Cmd) {})
	creds.Foreign = true
	p := w.spawnPrincipal(creds, g.running["A"])
	if f, _ := p.Fact("instance"); f.Value != creds.Instance || p.Key() == p.Name() {
		t.Errorf("instance %+v, key %q", f, p.Key())
	}
	if f, _ := p.Fact("namespaces"); f.Value != "foreign" {
		t.Errorf("namespaces %+v", f)
	}
}

func TestAnAgentsTokenCountsFromItsTreeAlone(t *testing.T) {
	t.Parallel()
	w, _, _ := withAgents(t)
	creds := peerOf(t, func(*exec.Cmd) {})
	for _, c := range []struct {
		what   string
		caller *Caller
		auth   []string
		want   string
	}{
		{"no token in the tree", &Caller{Unix: creds, Spawn: "A"}, nil, ""},
		{"another scheme", &Caller{Unix: creds, Spawn: "A"}, []string{"Basic " + agentToken}, ""},
		{"a token and another", &Caller{Unix: creds, Spawn: "A"}, []string{"Bearer " + agentToken, "Bearer " + agentToken}, ""},
		{"a part of the token", &Caller{Unix: creds, Spawn: "A"}, []string{"Bearer " + agentToken[:30]}, ""},
		{"the sibling's token", &Caller{Unix: creds, Spawn: "A"}, []string{"Bearer " + siblingToken}, ""},
		{"its token in the sibling's tree", &Caller{Unix: creds, Spawn: "B"}, []string{"Bearer " + agentToken}, ""},
		{"a token of the daemon in the tree", &Caller{Unix: creds, Spawn: "A"}, []string{"Bearer " + envToken}, ""},
		{"in the tree of none that runs", &Caller{Unix: creds, Spawn: "C"}, []string{"Bearer " + agentToken}, ""},
		{"from outside, of the same user", &Caller{Unix: creds}, []string{"Bearer " + agentToken}, ""},
		{"a made-up one from outside", &Caller{Unix: creds}, []string{"bearer  " + SpawnToken + "guess"}, ""},
		{"over TCP with a token asked for", enforced(), []string{"Bearer " + agentToken}, ""},
		{"over loopback TCP", &Caller{Loopback: true, OwnerKnown: true, OwnerUID: me()}, []string{"Bearer " + agentToken}, ""},
		{"outside without a token it is the user", &Caller{Unix: creds}, nil, principal.UID(me())},
		{"other headers on the socket are ignored", &Caller{Unix: creds}, []string{"Bearer " + envToken}, principal.UID(me())},
	} {
		got, err := w.ask(c.caller, c.auth...)
		if got != c.want || c.want == "" && !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%s: %q, %v; want %q", c.what, got, err, c.want)
		}
	}
}

// An agent is checked at each request: on an accepted connection it is refused once it has
// ended, or with the token of another agent.
func TestAnAgentThatHasEndedIsRefused(t *testing.T) {
	t.Parallel()
	w, g, _ := withAgents(t)
	creds := peerOf(t, func(*exec.Cmd) {})
	c := &Caller{Unix: creds, Spawn: "A"}
	p, err := w.Authenticate(c, []string{"Bearer " + agentToken})
	if err != nil || !w.Holds(p) {
		t.Fatalf("it runs: %v, holds %v", err, w.Holds(p))
	}
	if got, err := w.ask(c, "Bearer "+siblingToken); err == nil {
		t.Errorf("another token on a connection that had the right one: %q", got)
	}
	g.end("A")
	if got, err := w.ask(c, "Bearer "+agentToken); err == nil {
		t.Errorf("after its end: %q", got)
	}
	if w.Holds(p) {
		t.Error("its streams go on after its end")
	}
}

// An agent and the agents that it started are refused once the token of the first parent is
// revoked. The end of an agent does not affect the agents that it started.
func TestARevokedParentCutsItsAgentsOff(t *testing.T) {
	t.Parallel()
	w, g, _ := withAgents(t)
	creds := peerOf(t, func(*exec.Cmd) {})
	child, err := w.Authenticate(&Caller{Unix: creds, Spawn: "A"}, []string{"Bearer " + agentToken})
	if err != nil {
		t.Fatal(err)
	}
	const deepToken = SpawnToken + "the-token-of-a-grandchild-0123456"
	g.mu.Lock()
	g.running["D"] = &Spawned{ID: "D", Parent: child, Digest: digestOf(deepToken)}
	g.mu.Unlock()
	ask := func() (p *principal.Principal, err error) {
		return w.Authenticate(&Caller{Unix: creds, Spawn: "D"}, []string{"Bearer " + deepToken})
	}
	deep, err := ask()
	if err != nil || deep.Parent().Parent().Name() != "token:parent" {
		t.Fatalf("the grandchild: %v, %v", deep.Name(), err)
	}
	g.end("A") // the grandchild outlives its parent
	if _, err := ask(); err != nil || !w.Holds(deep) {
		t.Errorf("one that outlives its parent: %v", err)
	}
	if n, err := w.store.Revoke("parent"); err != nil || len(n) != 1 {
		t.Fatal(n, err)
	}
	w.clock.advance(2 * time.Second)
	if _, err := ask(); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("after the token above was revoked: %v", err)
	}
	if w.Holds(deep) || w.Holds(child) {
		t.Error("streams go on after the token above was revoked")
	}
}

func TestAnAgentNeedsALivingPeerOfOurUser(t *testing.T) {
	t.Parallel()
	w, g, _ := withAgents(t)
	dead := peerOf(t, func(*exec.Cmd) {})
	dead.Close()
	for _, p := range []*attest.Credentials{nil, dead, {UID: me() + 1}} {
		if who := w.spawnPrincipal(p, g.running["A"]); who.Valid() {
			t.Errorf("%+v is %s", p, who.Name())
		}
	}
}
