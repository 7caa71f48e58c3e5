package peer

import (
	"errors"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Holders finds the process that holds the client's end of a loopback connection,
// by the socket's number in the kernel's table and the descriptors of this user's
// processes. Its methods may be called from many goroutines.
//
// A holder is positive evidence. A socket that is in flight between processes, registered
// with io_uring only, or held by a process whose descriptors cannot be read has no
// holder. What Holders remembers between searches decides where it looks first, never the
// answer.
//
// One goroutine at a time searches for all waiting callers, so the cost does not grow with
// the number of connections. The first search is made by the first caller, further ones by
// a goroutine of their own. A search begins with the processes that last held a socket and
// the newest ones. Only a socket that is not found there is looked for in all processes,
// twice before the answer is no. These searches use at most half of the time, so that
// sockets without a holder cannot keep a processor busy.
type Holders struct {
	root  int32
	since uint64 // start of root; 0: it could not be read

	mu      sync.Mutex
	wanted  []*wanted // added since the last search began
	running bool
	wake    chan struct{}

	// The fields below belong to the goroutine that searches.
	recent []place        // where sockets were found, the latest first
	inside map[int32]bool // whether a process was below root when it was checked
}

// place is the descriptor at which a process last held a socket.
type place struct {
	pid        int32
	descriptor int
}

// wanted is one socket whose holder is searched for.
type wanted struct {
	inode  uint32
	looks  int // number of searches among all processes
	done   chan struct{}
	holder Holder
	err    error
}

// NewHolders makes a Holders for the daemon whose process is root.
func NewHolders(root int32) *Holders {
	top, _ := look(root)
	return &Holders{root: root, since: top.start, wake: make(chan struct{}, 1), inside: make(map[int32]bool)}
}

// Find finds a process of this user that holds the client's end of a loopback connection.
// local and remote are as in OwnerOfTCP, and so are the errors. ErrNoHolder: no such
// process was found.
func (h *Holders) Find(local, remote netip.AddrPort) (Holder, error) {
	inode, err := inodeOfTCP(plain(remote), plain(local))
	if err != nil {
		return Holder{}, err
	}
	w := &wanted{inode: inode, done: make(chan struct{})}
	if h.enter(w) {
		h.begin()
	}
	<-w.done
	return w.holder, w.err
}

// inodeOfTCP returns the inode number of a socket, by which the descriptors in /proc name
// it.
func inodeOfTCP(src, dst netip.AddrPort) (uint32, error) {
	d, err := openDiag()
	if err != nil {
		return 0, err
	}
	defer unix.Close(int(d))
	inode, err := d.inode(src, dst)
	if errors.Is(err, unix.ENOENT) {
		return 0, d.absent(src)
	}
	return inode, err
}

// enter adds a socket to the running search. first: no search runs, and the caller begins one.
func (h *Holders) enter(w *wanted) (first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wanted = append(h.wanted, w)
	if !h.running {
		h.running = true
		return true
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
	return false
}

// begin searches among the likely processes, mostly for the one socket of its caller. A
// goroutine searches for what is not found there.
func (h *Holders) begin() {
	fresh, _ := h.take(false)
	missing := h.look(fresh, false)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running = len(missing)+len(h.wanted) > 0; h.running {
		go h.run(missing)
	}
}

// run searches until no request is left. missing are the sockets that were not found among the
// likely processes.
func (h *Holders) run(missing []*wanted) {
	var rest time.Time
	for {
		fresh, ended := h.take(len(missing) == 0)
		if ended {
			return
		}
		missing = append(missing, h.look(fresh, false)...)
		wait := time.Until(rest)
		switch {
		case len(missing) == 0:
		case wait <= 0:
			began := time.Now()
			missing = again(h.look(missing, true))
			rest = time.Now().Add(time.Since(began))
		default:
			h.pause(wait)
		}
	}
}

// take returns the sockets that were added since the last call. ended means that there
// are none and that the run stops; the next enter starts another run.
func (h *Holders) take(idle bool) (fresh []*wanted, ended bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fresh, h.wanted = h.wanted, nil
	ended = idle && len(fresh) == 0
	h.running = !ended
	return fresh, ended
}

// pause waits for most, or until a socket is added.
func (h *Holders) pause(most time.Duration) {
	select {
	case <-time.After(most):
	case <-h.wake:
	}
}

// fullLooks is the number of searches among all processes before a socket counts as not
// held: a descriptor that moves during one search is found by the next.
const fullLooks = 2

// again answers the sockets that were looked for often enough, and returns the others.
func again(missing []*wanted) (rest []*wanted) {
	for _, w := range missing {
		if w.looks++; w.looks < fullLooks {
			rest = append(rest, w)
			continue
		}
		w.answer(Holder{}, ErrNoHolder)
	}
	return rest
}

func (w *wanted) answer(holder Holder, err error) {
	w.holder, w.err = holder, err
	close(w.done)
}

// These are the limits of a search among the likely processes.
const (
	nearProcesses   = 64
	nearDescriptors = 4096
	recentKept      = 8
)

// look searches all processes or the likely ones for sockets, and returns the sockets
// that were not found.
func (h *Holders) look(sockets []*wanted, all bool) (missing []*wanted) {
	if len(sockets) == 0 {
		return nil
	}
	s := search{Holders: h, uid: uint32(os.Geteuid()), all: all, left: make(map[uint32][]*wanted, len(sockets)), processes: nearProcesses, descriptors: nearDescriptors}
	for _, w := range sockets {
		s.left[w.inode] = append(s.left[w.inode], w)
	}
	s.run()
	for _, w := range s.left {
		missing = append(missing, w...)
	}
	return missing
}
