package process

import "os"

// A supervisor begins here, while the packages of the program are initialised. Go
// initialises this one early, since it imports little; the others would cost each
// supervisor 10 ms and 1.5 MB, and a contained server has two of them.
var _ = begin()

// begin runs the subcommand child-supervisor, in whose place nothing else of the program
// runs, and returns in every other process.
func begin() struct{} {
	if len(os.Args) > 1 && os.Args[1] == subcommand {
		os.Exit(supervise(os.Args[2:]))
	}
	return struct{}{}
}

// subcommand is the hidden one of the program that is a supervisor.
const subcommand = "child-supervisor"
