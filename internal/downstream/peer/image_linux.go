package peer

import (
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Image is a hold on one program in the memory of one process: it no longer
// Holds once that process has run exec or ended. It can be fooled by a process
// that shares its memory with another and lets that one go on, which a program
// can only do to itself.
//
// The file that it holds keeps the description of the memory, not the memory.
type Image struct {
	lost atomic.Bool // once gone, always gone

	mu   sync.Mutex
	fd   int
	keep int // Retains and looks under way; the descriptor is closed at 0
	size int // bytes of a look
}

// openImage takes a hold on the program that runs as pid now. pagemap costs
// half of what maps does, and is missing from some kernels.
func openImage(pid int32) *Image {
	dir := "/proc/" + strconv.Itoa(int(pid)) + "/"
	for _, f := range []struct {
		name string
		size int
	}{{"pagemap", 8}, {"maps", 1}} {
		if m := openImageFile(dir+f.name, f.size); m != nil {
			return m
		}
	}
	return nil
}

func openImageFile(path string, size int) *Image {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	m := &Image{fd: fd, keep: 1, size: size}
	if !m.Holds() {
		m.Release()
		return nil
	}
	return m
}

// Holds reports whether the program is still there. It costs one system call.
// The lock is not held over it: the kernel may wait there for the other
// process's memory, and Release must not.
func (m *Image) Holds() bool {
	if m == nil || m.lost.Load() || !m.retain() {
		return false
	}
	defer m.Release()
	var b [8]byte
	n, err := unix.Pread(m.fd, b[:m.size], 0)
	for err == unix.EINTR {
		n, err = unix.Pread(m.fd, b[:m.size], 0)
	}
	if n != m.size {
		m.lost.Store(true)
		return false
	}
	return true
}

// Retain keeps the Image until the matching Release. An Image whose last holder
// has released it cannot be retained again.
func (m *Image) Retain() { m.retain() }

func (m *Image) retain() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keep++
	return m.fd >= 0
}

// Release undoes one Retain.
func (m *Image) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.keep--; m.keep > 0 || m.fd < 0 {
		return
	}
	unix.Close(m.fd)
	m.fd = -1
	m.lost.Store(true)
}
