package peer

// Process is one process above another.
type Process struct {
	Instance string // "BOOT/PID@START", as Ancestors names it
	// Name is what the process calls itself: it chooses it, so it may serve to
	// pick one of several, and to decide nothing. It is one word: what is not
	// printable ASCII in it is written as an escape.
	Name string
}
