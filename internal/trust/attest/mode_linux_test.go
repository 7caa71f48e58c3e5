package attest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/puppet"
)

func TestTheSocketNeverHasAWiderMode(t *testing.T) {
	t.Parallel()
	path := filepath.Join(puppet.OpenDir(t), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := ListenControl("unix", path, control(fd)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Lstat(path); err != nil || fi.Mode() != os.ModeSocket|0o600 {
		t.Errorf("bound with mode %v, %v", fi.Mode(), err)
	}
}

// control is a descriptor as net.ListenConfig shows it.
type control int

func (c control) Control(f func(uintptr)) error  { f(uintptr(c)); return nil }
func (c control) Read(func(uintptr) bool) error  { return errors.ErrUnsupported }
func (c control) Write(func(uintptr) bool) error { return errors.ErrUnsupported }
