package peer

import (
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Image is a handle on the program in the memory of one process: Holds turns false once
// the process has run exec or ended. A process that shares its memory with another one
// can keep it true after an exec, but only for its own program.
//
// The open file keeps the kernel's description of the memory alive, not the memory
// itself.
type Image struct {
	lost atomic.Bool // once set, never cleared

	mu   sync.Mutex
	fd   int
	keep int // number of Retains and running looks, and 1; the descriptor is closed at 0
	size int // number of bytes that a look reads
}

// openImage opens a handle on the program that pid runs now. A read of pagemap costs half
// as much as one of maps, but some kernels do not have it.
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

// Holds reports whether the program is still there, with one system call. The lock is not
// held during the call: the kernel may wait there for the memory of the other process,
// and Release must not wait.
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
