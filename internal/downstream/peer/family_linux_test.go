package peer

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/puppet"
)

func TestTheFamilyOfAProcess(t *testing.T) {
	t.Parallel()
	self, _ := os.Executable()
	me := int32(os.Getpid())
	p := puppet.New(t, nil, "")
	child := int32(p.Process.Pid)
	grandchild := pidOf(t, p.Do(t, "mother", self))
	stranger := puppet.New(t, nil, "")
	for _, tc := range []struct {
		what          string
		pid, ancestor int32
		want          bool
	}{
		{"a child", child, me, true},
		{"a grandchild", grandchild, me, true},
		{"its child", grandchild, child, true},
		{"the process itself", me, me, false},
		{"its parent", int32(os.Getppid()), me, false},
		{"a sibling", int32(stranger.Process.Pid), child, false},
		{"a child the wrong way round", child, grandchild, false},
		{"the first process", 1, me, false},
		{"process 0", 0, me, false},
		{"a foreign process", -1, me, false},
		{"one that is gone", 1 << 30, me, false},
		{"an ancestor that is gone", child, 1 << 30, false},
	} {
		if got := DescendantOf(tc.pid, tc.ancestor); got != tc.want {
			t.Errorf("%s: %v", tc.what, got)
		}
	}
}

func pidOf(t *testing.T, s string) int32 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}

// A process that daemonises below a subreaper is still a descendant, because the subreaper
// adopts it. Servers are started below one.
func TestADaemonisedGrandchildStaysInTheFamily(t *testing.T) {
	t.Parallel()
	reaper := puppet.Start(t, nil, "subreaper")
	grandchild := pidOf(t, strings.TrimPrefix(reaper.Line(t, "orphan"), "orphan "))
	r, ok := look(grandchild)
	if !ok || int(r.parent) != reaper.Process.Pid {
		t.Fatalf("the stage is wrong: %+v", r)
	}
	if !DescendantOf(grandchild, int32(os.Getpid())) {
		t.Error("it is not a descendant any more")
	}
}

// subreaper adopts its grandchild: it has the parent exit.
func subreaper([]string) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	p, err := puppet.NewStagehand("")
	if err != nil {
		return err
	}
	line, err := p.Ask("heir")
	if err != nil {
		return err
	}
	if _, err := p.Cmd.Process.Wait(); err != nil {
		return err
	}
	fmt.Println("orphan", strings.TrimPrefix(line, "done "))
	_, _ = puppet.LineOf(0) // until its own input ends
	return nil
}

// The name of a process is written as one word with its separators escaped, because the
// process chooses it and could imitate further entries.
func TestANameIsOneWord(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"node": "node", "a b": `a\x20b`, "x,1:systemd": `x\x2c1\x3asystemd`, "a\nb": `a\x0ab`, `"`: `\x22`, `\x2c`: `\x5cx2c`, "\xff": `\xff`, "é": `\xc3\xa9`, "": "",
	} {
		if got := word(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
	cmd := exec.Command(puppet.CopyOf(t, "x) S 1 ,1:i", "/bin/sleep"), "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	pid := int32(cmd.Process.Pid)
	puppet.Eventually(t, "it runs", func() bool { r, _ := look(pid); return r.name == "x) S 1 ,1:i" })
	if r, ok := look(pid); !ok || int(r.parent) != os.Getpid() || r.start == 0 {
		t.Errorf("%+v", r)
	}
	if got := ancestors(pid)[0]; got != strconv.Itoa(int(pid))+`:x)\x20S\x201\x20\x2c1\x3ai` {
		t.Errorf("in the chain it is %s", got)
	}
}

func TestTheChainIsShort(t *testing.T) {
	t.Parallel()
	self, _ := os.Executable()
	p := puppet.New(t, nil, "")
	pid := ""
	for range maxParents + 2 {
		pid = p.Do(t, "mother", self)
	}
	if got := ancestors(pidOf(t, pid)); len(got) != maxParents {
		t.Errorf("%d in the chain: %q", len(got), got)
	}
	if !DescendantOf(pidOf(t, pid), int32(os.Getpid())) {
		t.Error("a deep descendant is none")
	}
}

func TestTicksAreWrittenAsSeconds(t *testing.T) {
	t.Parallel()
	for ticks, want := range map[uint64]string{0: "0.00", 5: "0.05", 123456: "1234.56", 100: "1.00"} {
		if got := seconds(ticks); got != want {
			t.Errorf("%d: %s, want %s", ticks, got, want)
		}
	}
}
