package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// deadVar marks the process in whose mount namespace a test of dead mounts runs.
const deadVar = "DOORWARD_TEST_DEAD"

// withMounts runs a test again in a mount namespace of its own, and there calls inside with a directory.
func withMounts(t *testing.T, inside func(t *testing.T, dir string)) {
	t.Helper()
	if dir := os.Getenv(deadVar); dir != "" {
		must(0, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		inside(t, dir)
		return
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, self(), "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), deadVar+"="+t.TempDir())
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	out, err := c.CombinedOutput()
	if strings.Contains(string(out), "--- SKIP") {
		t.Skipf("%s", out)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// fuse mounts a file system on a directory, whose program never answers. The descriptor is the program's.
func fuse(t *testing.T, dir string) int {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("no FUSE:", err)
	}
	must(0, os.MkdirAll(dir, 0o700))
	if err := unix.Mount("test", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
		t.Skip("no FUSE:", err)
	}
	return fd
}

// deadFuse mounts a file system of which the program has ended.
func deadFuse(t *testing.T, dir string) {
	t.Helper()
	must(0, unix.Close(fuse(t, dir)))
	if _, err := os.Lstat(dir); outcome("", err) != "ENOTCONN" {
		t.Fatalf("a dead mount: %v", err)
	}
}

// TestDeadMountsStopNoServer: a mount among the engines whose program has ended, or does not answer, stops no server.
// If it does not answer it must lie in no grant.
func TestDeadMountsStopNoServer(t *testing.T) {
	withMounts(t, func(t *testing.T, dir string) {
		must(0, unix.Mount("tmpfs", "/run", "tmpfs", 0, ""))
		deadFuse(t, "/run/user/1000/gvfs")
		must(0, os.WriteFile("/run/user/1000/other", nil, 0o600))
		for what, paths := range map[string][]string{"no grant": nil, "a grant above": {"/run"}, "the directory": {"/run/user/1000"}, "a grant beside": {"/run/user/1000/other"}} {
			for _, box := range []Sandbox{{Read: paths}, {Write: paths}, {Named: paths}} {
				if _, err := newView(&plan{Sandbox: box}, "/bin/true", nil); err != nil {
					t.Errorf("%s, %+v: %v", what, box, err)
				}
			}
		}
		fuse(t, "/run/user/1000/doc")
		for _, paths := range [][]string{nil, {dir}, {"/run/user/1000/other"}} {
			if _, err := newView(&plan{Sandbox: Sandbox{Read: paths}}, "/bin/true", nil); err != nil {
				t.Errorf("a mount that does not answer, %v: %v", paths, err)
			}
		}
	})
}

// TestRemountSkipsDeadMounts: what kernels before 5.12 get in the place of mount_setattr leaves a dead mount out and
// makes the mounts beside it read-only.
func TestRemountSkipsDeadMounts(t *testing.T) {
	withMounts(t, func(t *testing.T, dir string) {
		must(0, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
		deadFuse(t, dir+"/a")
		must(0, os.Mkdir(dir+"/b", 0o700))
		must(0, unix.Mount("tmpfs", dir+"/b", "tmpfs", 0, ""))
		if err := remount(dir, true); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir+"/b/new", 0o700); outcome("", err) != "EROFS" {
			t.Errorf("making a directory beside a dead mount: %v", err)
		}
	})
}
