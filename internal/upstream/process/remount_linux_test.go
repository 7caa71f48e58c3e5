package process

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// remountVar marks the process in whose mount namespace TestRemountReachesEveryMount runs.
const remountVar = "DOORWARD_TEST_REMOUNT"

// TestRemountReachesEveryMount: what kernels before 5.12 get in the place of mount_setattr makes the mounts below a
// bound directory read-only too, and nothing beside it.
func TestRemountReachesEveryMount(t *testing.T) {
	if os.Getenv(remountVar) == "" {
		t.Parallel()
		dir := t.TempDir()
		c := exec.Command(self(), "-test.run=^TestRemountReachesEveryMount$", "-test.v")
		c.Env = append(os.Environ(), remountVar+"="+dir)
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	dir := os.Getenv(remountVar)
	from, to := dir+"/from", dir+"/to"
	for _, d := range []string{from, to, dir + "/tool"} {
		must(0, os.Mkdir(d, 0o700))
	}
	must(0, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	all := []string{"", "/a b", "/a b/c", "/d"}
	for _, sub := range all[1:] {
		must(0, os.Mkdir(from+sub, 0o700))
		must(0, unix.Mount("tmpfs", from+sub, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	}
	must(0, unix.Mount("tmpfs", dir+"/tool", "tmpfs", 0, ""))
	must(0, unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""))
	if err := remount(to, true); err != nil {
		t.Fatal(err)
	}
	for _, sub := range all {
		if err := os.Mkdir(to+sub+"/new", 0o700); outcome("", err) != "EROFS" {
			t.Errorf("making a directory in the mount at %q: %v", sub, err)
		}
		if err := os.Mkdir(from+sub+"/other", 0o700); err != nil {
			t.Errorf("making a directory in what was bound, at %q: %v", sub, err)
		}
	}
	must(0, os.Mkdir(dir+"/tool/new", 0o700))
}
