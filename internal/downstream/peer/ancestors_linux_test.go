package peer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/test/puppet"
)

// chainOf has p connect and returns the names of p and of the processes above it.
func chainOf(t *testing.T, p puppet.Puppet) []string {
	t.Helper()
	ln, path := unixListener(t)
	p.Do(t, "dial", path)
	c, err := attest.OfUnix(puppet.AcceptUnix(t, ln))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	chain, err := Ancestors(c)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

func nameOf(t *testing.T, pid int) string {
	t.Helper()
	r, ok := look(int32(pid))
	if !ok {
		t.Fatalf("process %d is gone", pid)
	}
	return attest.Instance(int32(pid), r.start)
}

func TestTheChainGoesFromThePeerToTheFirstProcess(t *testing.T) {
	t.Parallel()
	p := puppet.New(t, nil, "")
	chain := chainOf(t, p)
	want := []string{nameOf(t, p.Process.Pid), nameOf(t, os.Getpid()), nameOf(t, os.Getppid())}
	if len(chain) < 3 || !slices.Equal(chain[:3], want) {
		t.Errorf("the chain is %q, want it to begin with %q", chain, want)
	}
	if top := chain[len(chain)-1]; top != nameOf(t, 1) {
		t.Errorf("it ends with %s", top)
	}
}

// An agent is in the chain of itself and of its descendants, also of one in a session of its
// own. An orphan that another process has adopted is not found below the agent.
func TestAnAgentIsInTheChainOfItsDescendants(t *testing.T) {
	t.Parallel()
	self, _ := os.Executable()
	for _, tc := range []struct {
		what  string
		below func(t *testing.T, agent puppet.Puppet)
		want  bool
	}{
		{"the agent itself", func(t *testing.T, p puppet.Puppet) {}, true},
		{"another program in its place", func(t *testing.T, p puppet.Puppet) { p.Tell(t, "become", self); p.Line(t, "done") }, true},
		{"a child", func(t *testing.T, p puppet.Puppet) { p.Do(t, "mother", self) }, true},
		{"a grandchild", func(t *testing.T, p puppet.Puppet) { p.Do(t, "mother", self); p.Do(t, "mother", self) }, true},
		{"a child in a session of its own", func(t *testing.T, p puppet.Puppet) { p.Do(t, "mother", self); p.Do(t, "setsid") }, true},
		{"an orphan that it left behind: as a stranger", func(t *testing.T, p puppet.Puppet) {
			between := pidOf(t, p.Do(t, "mother", self))
			p.Do(t, "setsid")
			daemon := pidOf(t, p.Do(t, "heir"))
			puppet.Eventually(t, "it is adopted", func() bool { r, _ := look(daemon); return r.parent != between })
		}, false},
	} {
		t.Run(tc.what, func(t *testing.T) {
			t.Parallel()
			agent := puppet.New(t, nil, "")
			name := chainOf(t, agent)[0]
			tc.below(t, agent)
			if got := slices.Contains(chainOf(t, agent), name); got != tc.want {
				t.Errorf("the agent is in the chain: %v", got)
			}
		})
	}
	stranger := puppet.New(t, nil, "")
	if agent := puppet.New(t, nil, ""); slices.Contains(chainOf(t, stranger), nameOf(t, agent.Process.Pid)) {
		t.Error("a stranger is below an agent")
	}
}

// The parent of a shim that connected for an agent is the agent: the agent's other children
// have the same parent in their chains.
func TestTheParentOfAShimIsFoundInItsOtherChildren(t *testing.T) {
	t.Parallel()
	shim, tool := puppet.New(t, nil, ""), puppet.New(t, nil, "")
	agent := chainOf(t, shim)[1]
	if got := chainOf(t, tool); got[1] != agent {
		t.Errorf("another child of the agent %s: %q", agent, got)
	}
}

// A chain is read again when a process in its middle exits meanwhile; the result does not
// contain that process.
func TestAChainThatChangesIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	self, _ := os.Executable()
	mother := puppet.New(t, nil, "")
	middle := nameOf(t, mother.Process.Pid)
	child := pidOf(t, mother.Do(t, "mother", self))
	looks := 0
	see := func(pid int32) (relative, bool) {
		if looks++; looks == 2 { // the child was seen, its parent comes next
			mother.Process.Kill()
			mother.Wait()
		}
		return look(pid)
	}
	chain, err := lineage(child, see)
	if err != nil || slices.Contains(chain, middle) || chain[0] != nameOf(t, int(child)) {
		t.Errorf("%q, %v", chain, err)
	}
}

// A process that gets the number of an exited parent while a chain is read is not in the
// chain.
func TestAReusedNumberInTheMiddleIsNoParent(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	d := puppet.Start(t, puppet.OwnNumbers(), "reuse-middle", filepath.Join(puppet.OpenDir(t), "s"))
	if got := d.Line(t, ""); got != "noticed" {
		t.Errorf("it %s", got)
	}
}

// reusedMiddle acts as the daemon in a pid namespace of its own.
func reusedMiddle(args []string) error {
	_, other, err := namespaced(args[0])
	if err != nil {
		return err
	}
	mother, err := puppet.NewStagehand("")
	if err != nil {
		return err
	}
	line, err := mother.Ask("mother", "/proc/self/exe")
	if err != nil {
		return err
	}
	child, err := strconv.Atoi(strings.TrimPrefix(line, "done "))
	if err != nil {
		return err
	}
	middle := int32(mother.Cmd.Process.Pid)
	impostor, looks := "", 0
	see := func(pid int32) (relative, bool) {
		if looks++; looks == 2 {
			mother.Cmd.Process.Kill()
			mother.Cmd.Wait()
			if err = other.Replace(middle); err != nil {
				return relative{}, false
			}
			r, _ := look(middle)
			impostor = attest.Instance(middle, r.start)
		}
		return look(pid)
	}
	chain, failed := lineage(int32(child), see)
	switch {
	case err != nil || failed != nil:
		return errors.Join(err, failed)
	case impostor == "" || slices.Contains(chain, impostor) || len(chain) != 2:
		return fmt.Errorf("believed %q, the impostor is %s", chain, impostor)
	}
	fmt.Println("noticed")
	return nil
}

// A chain that cannot be read up to the first process is an error, because callers refuse on
// an error and would accept a partial chain.
func TestAChainThatCannotBeReadToItsEndIsNone(t *testing.T) {
	t.Parallel()
	type family = map[int32]relative
	whole := family{9: {parent: 5, start: 90}, 5: {parent: 1, start: 50}, 1: {start: 1}}
	deep := family{}
	for n := int32(1); n <= maxLineage+1; n++ {
		deep[n] = relative{parent: n - 1}
	}
	flips := 0
	of := func(f family) func(int32) (relative, bool) {
		return func(pid int32) (relative, bool) { r, ok := f[pid]; return r, ok }
	}
	for _, tc := range []struct {
		what string
		pid  int32
		see  func(int32) (relative, bool)
		want int
	}{
		{what: "whole", pid: 9, see: of(whole), want: 3},
		{what: "the peer is hidden", pid: 8, see: of(whole)},
		{what: "a parent is hidden, as with hidepid", pid: 9, see: of(family{9: {parent: 5}})},
		{what: "put into the namespace from outside", pid: 9, see: of(family{9: {parent: 5}, 5: {parent: 0}})},
		{what: "a parent younger than its child", pid: 9, see: of(family{9: {parent: 5, start: 3}, 5: {parent: 1, start: 9}, 1: {}})},
		{what: "a ring", pid: 9, see: of(family{9: {parent: 5}, 5: {parent: 9}})},
		{what: "longer than the limit", pid: maxLineage + 1, see: of(deep)},
		{what: "as long as the limit", pid: maxLineage, see: of(deep), want: maxLineage},
		{what: "another parent at each look", pid: 9, see: func(pid int32) (relative, bool) {
			if pid == 9 {
				flips++
				return relative{parent: 2 + int32(flips%2), start: 9}, true
			}
			return relative{parent: min(pid-1, 1)}, true
		}},
		{what: "another process under the number at each look", pid: 9, see: func(pid int32) (relative, bool) {
			flips++
			return relative{parent: min(pid-1, 1), start: uint64(flips)}, true
		}},
	} {
		chain, err := lineage(tc.pid, tc.see)
		if len(chain) != tc.want || (tc.want > 0) != (err == nil) || err != nil && !errors.Is(err, ErrLineage) {
			t.Errorf("%s: %q, %v", tc.what, chain, err)
		}
	}
}

func TestOnlyALivingLocalPeerHasAncestors(t *testing.T) {
	t.Parallel()
	ln, path := unixListener(t)
	h := puppet.Start(t, nil, "dial", "unix", path)
	c, err := attest.OfUnix(puppet.AcceptUnix(t, ln))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	h.End()
	puppet.Eventually(t, "it has ended", func() bool { return !c.Alive() })
	me := int32(os.Getpid())
	for what, c := range map[string]*attest.Credentials{"one that has ended": c, "no credentials": nil, "without a pid": {}, "foreign": {PID: me, Foreign: true}} {
		if chain, err := Ancestors(c); !errors.Is(err, ErrLineage) || chain != nil {
			t.Errorf("%s: %q, %v", what, chain, err)
		}
	}
}
