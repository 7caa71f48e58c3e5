package peer

import (
	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// Eldest returns h, or the oldest of the processes above it that hold the socket at the same
// descriptor. A process that starts another one shares its descriptors with it until that
// one executes its program, and either may be found as the holder.
func Eldest(h Holder) Holder {
	for range maxLineage {
		r, there := look(h.PID)
		above, holds := h.heldBy(r.parent)
		if !there || !holds {
			break
		}
		h = above
	}
	return h
}

// heldBy returns h with another process as the holder, if that one has the socket at the
// descriptor of h.
func (h Holder) heldBy(pid int32) (Holder, bool) {
	dir, err := openProcess(pid)
	if err != nil {
		return h, false
	}
	defer unix.Close(dir)
	start, err := startIn(dir)
	inode, ok := socketAt(dir, "fd/"+h.descriptor)
	h.PID, h.Process = pid, attest.Instance(pid, start)
	return h, err == nil && ok && inode == h.inode
}
