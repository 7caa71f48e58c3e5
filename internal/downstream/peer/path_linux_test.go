package peer

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/puppet"
)

// A socket is stale only if a connect is refused. One with a full queue or of another type is
// in use.
func TestASocketThatDoesNotRefuseIsNotStale(t *testing.T) {
	t.Parallel()
	dir := puppet.OpenDir(t)

	full := filepath.Join(dir, "full")
	ln, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ln)
	if err := errors.Join(unix.Bind(ln, &unix.SockaddrUnix{Name: full}), unix.Listen(ln, 0)); err != nil {
		t.Fatal(err)
	}
	for range 3 { // no process accepts: the queue is soon full
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
