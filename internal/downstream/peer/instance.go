package peer

// Process is one process above another.
type Process struct {
	Instance string // in the form of Ancestors: "BOOT/PID@START"
	// Name is the name that the process gives itself, so it may select among several and
	// must decide nothing. It is one word: characters other than printable ASCII are
	// escaped.
	Name string
}
