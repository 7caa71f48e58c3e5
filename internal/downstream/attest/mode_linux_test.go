package attest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/puppet"
)

// A socket has mode 0600 from the bind on, without a moment in which others could connect.
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

// A socket for which SO_PASSCRED cannot be set is refused, because its reads would not name
// their writer.
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
		t.Errorf("of a file that is no socket: %v", err)
	}
}

// closedControl is a closed descriptor.
type closedControl struct{ control }

func (closedControl) Control(func(uintptr)) error { return os.ErrClosed }

// control is a descriptor as net.ListenConfig passes it.
type control int

func (c control) Control(f func(uintptr)) error  { f(uintptr(c)); return nil }
func (c control) Read(func(uintptr) bool) error  { return errors.ErrUnsupported }
func (c control) Write(func(uintptr) bool) error { return errors.ErrUnsupported }
