package peer

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// search is one walk through the processes.
type search struct {
	*Holders
	uid  uint32
	all  bool
	left map[uint32][]*wanted // by inode

	// How many processes with descriptors, and how many descriptors, may still be read,
	// unless all processes are searched.
	processes, descriptors int
}

// run guesses descriptors of the recent holders, visits these holders, then the newest
// numbers, and then every process, the newest first.
func (s *search) run() {
	recent := slices.Clone(s.recent)
	for _, p := range recent {
		if s.guess(p); len(s.left) == 0 {
			return
		}
	}
	for _, p := range recent {
		if !s.visit(p.pid) {
			return
		}
	}
	if !s.all && s.newest() {
		return
	}
	pids := processes()
	s.forget(pids)
	for _, pid := range slices.Backward(pids) {
		visited := slices.ContainsFunc(recent, func(p place) bool { return p.pid == pid })
		if !visited && !s.visit(pid) {
			return
		}
	}
}

// guesses is how many descriptors of a process are tried before they are listed.
const guesses = 3

// guess tries the descriptor at which a process last held a socket, and those after it: a
// client that opens one connection after the other uses the same number again, or the next.
func (s *search) guess(p place) {
	path := "/proc/" + strconv.Itoa(int(p.pid)) + "/fd/"
	for n := p.descriptor; n < p.descriptor+guesses && len(s.left) > 0; n++ {
		name := strconv.Itoa(n)
		if inode, ok := socketAt(unix.AT_FDCWD, path+name); ok {
			s.found(p.pid, name, inode)
		}
	}
}

// newestNumbers is how many numbers are tried before all processes are listed: listing
// costs more than finding a program that has just started.
const newestNumbers = 64

// newest visits the numbers that were given out last, among them those of threads. It
// reports whether every socket was found.
func (s *search) newest() bool {
	last := lastNumber()
	for n := last; n > 0 && n > last-newestNumbers && s.processes > nearProcesses/2; n-- {
		if !s.inside[n] {
			s.descend(n)
		}
		if len(s.left) == 0 {
			return true
		}
	}
	return false
}

// lastNumber returns the number that was last given to a process or thread; 0: unknown.
func lastNumber() int32 {
	text, err := attest.ReadProc("/proc/loadavg")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 5 {
		return 0
	}
	n, err := strconv.ParseInt(string(fields[4]), 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// forget drops the ended processes from inside.
func (s *search) forget(pids []int32) {
	if len(pids) == 0 {
		return
	}
	for pid := range s.inside {
		if _, there := slices.BinarySearch(pids, pid); !there {
			delete(s.inside, pid)
		}
	}
}

// visit searches one process and reports whether to go on.
func (s *search) visit(pid int32) bool {
	inside, known := s.inside[pid]
	if s.all && !known {
		s.below(pid)
	}
	if s.all || !inside {
		s.descend(pid)
	}
	return len(s.left) > 0 && (s.all || s.processes > 0 && s.descriptors > 0)
}

// fewDescriptors is how many descriptors of a process are read before its place in the
// tree of processes is checked.
const fewDescriptors = 64

// descend reads the descriptors of one process. A process below root cannot be the client
// that is looked for, so only about the first fewDescriptors of its descriptors are read.
func (s *search) descend(pid int32) {
	path := "/proc/" + strconv.Itoa(int(pid))
	var of unix.Stat_t
	if unix.Stat(path, &of) != nil || of.Uid != s.uid {
		return // it has ended, or belongs to another user
	}
	dir, err := unix.Open(path+"/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return // it has ended, or its descriptors cannot be read
	}
	defer unix.Close(dir)
	var buf [4096]byte
	seen := 0
	for len(s.left) > 0 {
		n, err := unix.ReadDirent(dir, buf[:])
		if err != nil || n <= 0 {
			break
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			s.read(pid, dir, name)
		}
		before := seen
		if seen += len(names); before <= fewDescriptors && seen > fewDescriptors && s.below(pid) {
			break
		}
	}
	if seen > 0 {
		s.processes--
		s.descriptors -= seen
	}
}

// below reports whether a process is root or below it, and remembers that.
func (s *search) below(pid int32) bool {
	below := pid == s.root || DescendantOf(pid, s.root)
	s.inside[pid] = below
	return below
}

// under is below for a process that was just read.
func (s *search) under(r relative, pid int32) bool {
	if pid == s.root || s.since == 0 {
		return s.below(pid)
	}
	below, settled := r.climb(pid, s.root, s.since)
	if !settled {
		return s.below(pid)
	}
	s.inside[pid] = below
	return below
}

// read looks at one descriptor.
func (s *search) read(pid int32, dir int, name string) {
	if inode, ok := socketAt(dir, name); ok {
		s.found(pid, name, inode)
	}
}

// found ends the search for the socket that a process has at a descriptor, if it is looked
// for, unless the process belongs to another user or has changed meanwhile.
func (s *search) found(pid int32, name string, inode uint32) {
	waiting := s.left[inode]
	if waiting == nil {
		return
	}
	holder, ok := s.holder(pid, name, inode)
	if !ok {
		return
	}
	holder = s.opener(holder)
	delete(s.left, inode)
	if n, err := strconv.Atoi(name); err == nil && !holder.Inside {
		s.remember(place{holder.PID, n})
	}
	for _, w := range waiting {
		w.answer(holder, nil)
	}
}

// remember puts the place of a process first among the recent ones.
func (s *search) remember(p place) {
	kept := slices.DeleteFunc(s.recent, func(other place) bool { return other.pid == p.pid })
	s.recent = append([]place{p}, kept[:min(len(kept), recentKept-1)]...)
}

// holder confirms that a process holds a socket. An open directory of /proc pins the
// process instance: user, place in the tree and descriptor are all read through or during
// it, and so belong to one process. For the number of a thread, it confirms the process
// of the thread, because the table of descriptors is read there.
func (s *search) holder(pid int32, name string, inode uint32) (Holder, bool) {
	dir, err := openProcess(pid)
	if err != nil {
		return Holder{}, false
	}
	defer unix.Close(dir)
	process, uid, err := identityIn(dir)
	if err == nil && process != pid && process > 0 {
		return s.holder(process, name, inode)
	}
	r, ok := lookIn(dir, "", pid)
	if err != nil || !ok || process != pid || uid != s.uid {
		return Holder{}, false
	}
	h := Holder{PID: pid, Process: attest.Instance(pid, r.start), Inside: s.under(r, pid), parent: r.parent, descriptor: name, inode: inode}
	again, ok := socketAt(dir, "fd/"+name)
	return h, ok && again == inode
}

// opener returns the process from which a holder has its descriptor, if that process still
// has the same socket at the same number. A process that starts another is such a one until
// the exec of the other closes the descriptor. The newest processes are searched first, so a
// client that starts programs would otherwise be taken for one of them. A holder below the
// daemon stays the holder, because it is refused anyway.
func (s *search) opener(h Holder) Holder {
	for range maxParents {
		if h.Inside {
			break
		}
		parent := "/proc/" + strconv.Itoa(int(h.parent)) + "/fd/" + h.descriptor
		if inode, ok := socketAt(unix.AT_FDCWD, parent); !ok || inode != h.inode {
			break
		}
		above, ok := s.holder(h.parent, h.descriptor, h.inode)
		if !ok {
			break
		}
		h = above
	}
	return h
}

// openProcess opens the directory of a process.
func openProcess(pid int32) (dir int, err error) {
	return unix.Open("/proc/"+strconv.Itoa(int(pid)), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// socketAt returns the number of the socket that a descriptor in /proc links to.
func socketAt(dir int, name string) (inode uint32, ok bool) {
	var buf [64]byte
	n, err := unix.Readlinkat(dir, name, buf[:])
	if err != nil {
		return 0, false
	}
	text, ok := bytes.CutPrefix(buf[:n], []byte("socket:["))
	if !ok {
		return 0, false
	}
	number, err := strconv.ParseUint(string(bytes.TrimSuffix(text, []byte("]"))), 10, 32)
	return uint32(number), err == nil
}

// Still reports whether a holder still has the descriptor by which it was found on its
// socket. If not, call Find again.
func (h *Holders) Still(of Holder) bool {
	dir, err := openProcess(of.PID)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	r, there := lookIn(dir, "", of.PID)
	inode, ok := socketAt(dir, "fd/"+of.descriptor)
	return there && ok && inode == of.inode && attest.Instance(of.PID, r.start) == of.Process
}

// processes lists all process numbers in ascending order.
func processes() []int32 {
	dir, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(dir)
	var all []int32
	buf := make([]byte, 32<<10)
	for {
		n, err := unix.ReadDirent(dir, buf)
		if err != nil || n <= 0 {
			break
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if pid, err := strconv.ParseInt(name, 10, 32); err == nil {
				all = append(all, int32(pid))
			}
		}
	}
	slices.Sort(all)
	return all
}

// identityIn reads the number and the effective uid of the process that an open /proc
// directory belongs to. For the directory of a thread, the number differs from its name.
func identityIn(dir int) (process int32, uid uint32, err error) {
	b, err := attest.ReadIn(dir, "status")
	if err != nil {
		return 0, 0, err
	}
	for line := range bytes.Lines(b) {
		name, rest, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "Tgid" && string(name) != "Uid" {
			continue
		}
		f := bytes.Fields(rest)
		switch {
		case name[0] == 'T' && len(f) > 0:
			n, err := strconv.ParseInt(string(f[0]), 10, 32)
			if err != nil {
				return 0, 0, fmt.Errorf("reading the Tgid line: %w", err)
			}
			process = int32(n)
		case name[0] == 'U' && len(f) > 1:
			n, err := strconv.ParseUint(string(f[1]), 10, 32)
			return process, uint32(n), err
		}
	}
	return 0, 0, errors.New("no Uid line")
}
