package peer

// Process is one process above another.
type Process struct {
	Instance string // "BOOT/PID@START", as Ancestors names it
	// Name is what the process calls itself. The process chooses it, so it may
	// select one of several and must decide nothing. It is one word: characters
	// other than printable ASCII are escaped.
	Name string
}
