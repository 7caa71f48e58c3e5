package peer

import (
	"errors"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrTooMany: the search for the holder of a socket was given up.
var ErrTooMany = errors.New("too many descriptors to find the holder of a socket among")

// HeldBelow reports whether a process below ancestor holds the far end of a
// loopback connection, so that a server which the daemon started does not come
// in as the daemon's own user. local and remote are as for OwnerOfTCP.
//
// It is observed, and a second line: a descriptor that is handed to a process
// elsewhere is not found, nor is one of a process that does not let us look.
// A search among more than limit descriptors and processes ends with
// ErrTooMany: whoever opens very many must not get by for that reason. (It is
// counted and not timed, so that a busy machine refuses nobody.)
func HeldBelow(local, remote netip.AddrPort, ancestor int32, limit int) (bool, error) {
	d, err := openDiag()
	if err != nil {
		return false, err
	}
	defer unix.Close(int(d))
	inode, err := d.inode(plain(remote), plain(local))
	if errors.Is(err, unix.ENOENT) {
		err = d.absent(plain(remote))
	}
	if err != nil {
		return false, err
	}
	s := search{link: "socket:[" + strconv.FormatUint(uint64(inode), 10) + "]", left: limit}
	return s.below(ancestor)
}

// search looks for one open file among processes.
type search struct {
	link string // what its descriptors link to
	left int    // how much more may be looked at
}

// below looks at every process below pid. The order is breadth first, so that
// a deep tree needs no deep stack.
func (s *search) below(pid int32) (bool, error) {
	for next := children(pid); len(next) > 0; next = next[1:] {
		if s.left--; s.left < 0 {
			return false, ErrTooMany
		}
		if held, err := s.heldBy(next[0]); held || err != nil {
			return held, err
		}
		next = append(next, children(next[0])...)
	}
	return false, nil
}

// children are those of all threads of a process.
func children(pid int32) (all []int32) {
	tasks := "/proc/" + strconv.Itoa(int(pid)) + "/task"
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil // it has ended
	}
	for _, t := range threads {
		b, err := os.ReadFile(tasks + "/" + t.Name() + "/children")
		if err != nil {
			continue
		}
		for _, word := range strings.Fields(string(b)) {
			if n, err := strconv.ParseInt(word, 10, 32); err == nil {
				all = append(all, int32(n))
			}
		}
	}
	return all
}

// heldBy looks through the descriptors of one process.
func (s *search) heldBy(pid int32) (bool, error) {
	dir, err := os.Open("/proc/" + strconv.Itoa(int(pid)) + "/fd")
	if err != nil {
		return false, nil // it has ended, or does not let us look
	}
	defer dir.Close()
	var buf [64]byte
	for {
		names, err := dir.Readdirnames(256)
		for _, name := range names {
			if n, err := unix.Readlinkat(int(dir.Fd()), name, buf[:]); err == nil && string(buf[:n]) == s.link {
				return true, nil
			}
		}
		if s.left -= len(names); s.left < 0 {
			return false, ErrTooMany
		}
		if err != nil {
			return false, nil // the end of the directory, or of the process
		}
	}
}
