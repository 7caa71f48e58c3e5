package peer

import "errors"

// Holder is a process that held the client's end of a loopback connection when
// it was looked for. It is observed.
type Holder struct {
	PID     int32
	Process string // as Ancestors names it: "BOOT/PID@START"
	// Inside: it is the daemon itself or below it in the tree of processes.
	Inside bool

	descriptor string
	inode      uint32
}

// ErrNoHolder: a socket is there, and no process of this user that lets its
// descriptors be read holds it.
var ErrNoHolder = errors.New("no process was found that holds the socket")
