package peer

import (
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
)

// descriptorOf returns the number and the inode of a socket of this process.
func descriptorOf(t *testing.T, c syscall.Conn) (descriptor int, inode uint32) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { descriptor = int(fd) }); err != nil {
		t.Fatal(err)
	}
	dir, err := openProcess(int32(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(dir)
	inode, ok := socketAt(dir, "fd/"+strconv.Itoa(descriptor))
	if !ok {
		t.Fatalf("descriptor %d is no socket", descriptor)
	}
	return descriptor, inode
}

// TestGuess: a socket is found at the descriptor that its process used last and at the next
// ones, with the same checks as any other, and nowhere else.
func TestGuess(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() }) // after the parallel subtests
	descriptor, inode := descriptorOf(t, ln.(*net.TCPListener))
	pid, uid := int32(os.Getpid()), uint32(os.Geteuid())
	for name, c := range map[string]struct {
		last   int
		uid    uint32
		wanted uint32
		found  bool
	}{
		"the same number":     {descriptor, uid, inode, true},
		"the last guess":      {descriptor - guesses + 1, uid, inode, true},
		"before the guesses":  {descriptor + 1, uid, inode, false},
		"after the guesses":   {descriptor - guesses, uid, inode, false},
		"another socket":      {descriptor, uid, inode + 1, false},
		"another user's":      {descriptor, uid + 1, inode, false},
		"negative descriptor": {-1 - guesses, uid, inode, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &wanted{inode: c.wanted, done: make(chan struct{})}
			s := search{Holders: NewHolders(-1), uid: c.uid, left: map[uint32][]*wanted{c.wanted: {w}}}
			s.guess(place{pid, c.last})
			if found := len(s.left) == 0; found != c.found {
				t.Fatalf("found: %v", found)
			}
			if c.found && (w.holder.PID != pid || w.holder.descriptor != strconv.Itoa(descriptor) || w.holder.inode != inode) {
				t.Errorf("the holder: %+v", w.holder)
			}
			if want := (place{pid, descriptor}); c.found && (len(s.recent) != 1 || s.recent[0] != want) {
				t.Errorf("remembered: %v, want %v", s.recent, want)
			}
		})
	}
}
