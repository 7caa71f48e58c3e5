package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The cgroup of a server has the server's limits and tells when the memory limit was exceeded. What an earlier daemon
// left is ended first.
//
// The controllers are files in a directory here: few machines hand them to a test.
func TestCgroupOfAServer(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	left := filepath.Join(base, serverGroup+"7")
	if err := os.Mkdir(left, 0o755); err != nil {
		t.Fatal(err)
	}
	c := divide(base)
	read := func(path string) string {
		b, _ := os.ReadFile(filepath.Join(base, path))
		return string(b)
	}
	if read("cgroup.subtree_control") != "+memory +pids" || read(serverGroup+"7/cgroup.kill") != "1" {
		t.Errorf("controllers %q, what was left over %q", read("cgroup.subtree_control"), read(serverGroup+"7/cgroup.kill"))
	}
	g := c.make(Limits{Memory: 1 << 30, Processes: 100})
	if g == nil {
		t.Fatal("no cgroup")
	}
	for file, want := range map[string]string{"memory.max": "1073741824", "memory.oom.group": "1", "memory.swap.max": "0",
		"pids.max": fmt.Sprint(100 + ownThreads)} {
		if got := read(serverGroup + "1/" + file); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
	if g.exceeded() != "" {
		t.Errorf("nothing has happened yet: %s", g.exceeded())
	}
	if err := os.WriteFile(filepath.Join(g.dir, "memory.events"), []byte("low 0\nmax 12\noom 1\noom_kill 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := g.exceeded(); got != "memory limit: 1 GiB" {
		t.Errorf("exceeded: %q", got)
	}
	if c.make(Limits{Files: 10}) != nil {
		t.Error("a cgroup was made for a limit that cgroups do not have")
	}
}

// A process is started in its cgroup, which is removed after it. The test needs a real cgroup, with or without
// controllers.
func TestProcessIsStartedInItsCgroup(t *testing.T) {
	t.Parallel()
	mount, own := findCgroup()
	dir := filepath.Join(mount, own, fmt.Sprintf("doorward-test-%d", os.Getpid()))
	if mount == "" || os.Mkdir(dir, 0o755) != nil {
		t.Skip("no cgroup can be made here")
	}
	fd := must(unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0))
	g := &cgroup{dir: dir, fd: fd}
	c := exec.Command("/bin/cat", "/proc/self/cgroup")
	c.SysProcAttr = &syscall.SysProcAttr{}
	g.place(c.SysProcAttr)
	out, err := c.CombinedOutput()
	g.remove()
	if err != nil || !strings.Contains(string(out), "0::"+filepath.Join(own, filepath.Base(dir))+"\n") {
		t.Errorf("%s, %v", out, err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the cgroup is left over")
	}
}

// A cgroup that was not delegated, or in which others run, is not divided.
func TestForeignCgroupsAreLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(fmt.Sprintf("1\n%d\n", os.Getpid())), 0o600); err != nil {
		t.Fatal(err)
	}
	if settle(dir) != nil {
		t.Error("a cgroup with other processes was taken")
	}
	if delegated(dir) {
		t.Error("a directory without a mark counts as delegated")
	}
	if !alone(filepath.Dir(dir), filepath.Base(dir)) {
		t.Error("a cgroup without a sibling does not count as alone")
	}
	if err := os.Mkdir(filepath.Join(filepath.Dir(dir), "app.slice"), 0o755); err != nil {
		t.Fatal(err)
	}
	if alone(filepath.Dir(dir), filepath.Base(dir)) {
		t.Error("a cgroup with a sibling counts as alone")
	}
	if entries := must(os.ReadDir(dir)); len(entries) != 1 {
		t.Errorf("something was made: %v", entries)
	}
}
