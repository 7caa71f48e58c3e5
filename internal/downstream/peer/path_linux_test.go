package peer

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A socket is stale when a connect is refused, and for no other reason.
func TestASocketThatDoesNotRefuseIsNotStale(t *testing.T) {
	t.Parallel()
	dir := openDir(t)

	full := filepath.Join(dir, "full")
	ln, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ln)
	if err := errors.Join(unix.Bind(ln, &unix.SockaddrUnix{Name: full}), unix.Listen(ln, 0)); err != nil {
		t.Fatal(err)
	}
	for range 3 { // nobody accepts: soon there is no room
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: full})
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
	}

	datagram := filepath.Join(dir, "datagram")
	gram, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(gram)
	if err := unix.Bind(gram, &unix.SockaddrUnix{Name: datagram}); err != nil {
		t.Fatal(err)
	}

	for _, path := range []string{full, datagram} {
		if err := ClearSocket(path); !errors.Is(err, ErrInUse) {
			t.Errorf("%s: %v, want ErrInUse", path, err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s is gone: %v", path, err)
		}
	}
}

// The mode is set before the socket has a name: there is no moment in which
// others could connect.
func TestTheSocketNeverHasAWiderMode(t *testing.T) {
	t.Parallel()
	path := filepath.Join(openDir(t), "s")
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
