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

// A socket that cannot be prepared is not used: its bytes would have no writer.
func TestASocketThatCannotBePreparedIsRefused(t *testing.T) {
	t.Parallel()
	if err := ListenControl("unix", "", closedControl{}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("of a closed descriptor: %v", err)
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := ListenControl("unix", "", control(file.Fd())); !errors.Is(err, unix.ENOTSOCK) {
		t.Errorf("of what is no socket: %v", err)
	}
}

// closedControl is a closed descriptor.
type closedControl struct{ control }

func (closedControl) Control(func(uintptr)) error { return os.ErrClosed }

// control is a descriptor as net.ListenConfig shows it.
type control int

func (c control) Control(f func(uintptr)) error  { f(uintptr(c)); return nil }
func (c control) Read(func(uintptr) bool) error  { return errors.ErrUnsupported }
func (c control) Write(func(uintptr) bool) error { return errors.ErrUnsupported }
