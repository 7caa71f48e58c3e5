package store

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func mountSmall(dir string) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m,mode=0700")
}

func TestADiskThatRunsFull(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "small-disk", t.TempDir())
	// In namespaces of its own the process may mount, and the mount is not seen elsewhere.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || strings.Contains(string(out), "operation not permitted") {
		t.Skipf("mounting a small file system is not permitted here (%v %s); TestAFileThatMayNotGrow covers the rest", err, out)
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// Only the FUSE file systems that have a disk of their own are local ones.
func TestWhichFUSEIsLocal(t *testing.T) {
	t.Parallel()
	const mounts = `22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw
30 22 8:17 / /mnt/usb rw,nosuid shared:2 master:1 - fuseblk /dev/sdb1 rw,user_id=0
31 22 0:45 / /mnt/far rw shared:3 - fuse.sshfs host:/ rw
32 22 0:46 / /mnt/fuseblk rw shared:3 - fuse fuseblk rw
broken
`
	for dev, want := range map[uint64]filesystem{
		8<<8 | 17: {"fuseblk", true},
		45:        {"fuse.sshfs", false},
		46:        {"fuse", false},
		47:        {"FUSE", false},
	} {
		if got := fuse([]byte(mounts), dev); got != want {
			t.Errorf("device %#x: %+v", dev, got)
		}
	}
}
