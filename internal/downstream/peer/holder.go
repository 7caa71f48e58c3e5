package peer

import "errors"

// Holder is a process that held the client's end of a loopback connection when
// it was looked for. It is observed.
type Holder struct {
	PID     int32
	Process string // in the form of Ancestors: "BOOT/PID@START"
	// Inside reports whether the process is the daemon itself or below it in the tree of
	// processes.
	Inside bool

	parent     int32
	descriptor string
	inode      uint32
}

// ErrNoHolder means that the socket exists, and that no process of this user whose
// descriptors can be read holds it.
var ErrNoHolder = errors.New("no process was found that holds the socket")
