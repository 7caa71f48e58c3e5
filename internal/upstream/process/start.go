// Package process runs stdio servers: it starts them, holds on to everything they start in turn, and ends all of it.
//
// A server is never the daemon's own child. Between the two stands a supervisor, a small program of this package alone
// ([Options].Image) or the doorward binary, started with the hidden subcommand child-supervisor: subreaper of everything below it, it passes the server's stdio straight through and
// waits. The invariant: when the server's main process ends, when [Process.Stop] has run its ladder, or when the daemon is
// gone in whatever way (the supervisor sees its control pipe close), every descendant of the server is killed, those
// included that made sessions of their own or that a dead parent left behind.
//
// A contained server (see [Sandbox]; docs/sandbox.md has the whole) has a second stage between the supervisor and itself:
// process 1 of its own pid, mount, user, ipc and uts namespaces, which the server cannot signal, trace or outlive. Its
// invariant: a server starts only where its own user, pid and mount namespaces, hidden paths and no_new_privs hold, or it
// does not start, and what of the rest holds is said in [Process.Sandbox].
//
// Admitted limits of a server that is not contained. It runs under the daemon's uid: it can do to its supervisor what one
// process of a user may do to another, which is SIGKILL, SIGSTOP, ptrace and prlimit. A killed supervisor takes the server's
// main process with it (parent-death signal) but not what that one had started; a stopped one is continued, and in the end
// bypassed, by the daemon's ladder, yet holds its tree when the daemon is gone too. A descendant of another uid (sudo) cannot
// be signalled at all. On macOS there is no subreaper: only the server's own process group is ended, so what calls setsid
// there escapes.
//
// Commands, arguments and environments come from the operator's configuration alone; no shell is involved.
package process

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// Defaults of [Options].
const (
	DefaultMax       = 64
	DefaultStdin     = 1500 * time.Millisecond
	DefaultTerm      = 3500 * time.Millisecond
	DefaultLastWatch = time.Second
)

var (
	// ErrTooMany is returned by [Runner.Start] when Options.Max children are alive. The caller answers 503 at once.
	ErrTooMany = errors.New("too many child processes")
	// ErrClosed is returned by [Runner.Start] after [Runner.Close].
	ErrClosed = errors.New("the runner of child processes is closed")
)

// Spec says what to start. Nothing in it may come from a caller.
type Spec struct {
	Server string   // name of the server in the configuration, for logs
	Path   string   // absolute path of the program, resolved once by Resolve; becomes argv[0] too
	Args   []string // arguments after argv[0]
	Env    []string // the complete environment, made by Environment
	Dir    string   // working directory; empty: Sandbox.Home, and without one the daemon's
	// Folder is the working directory itself, from OpenFolder, and Dir its path. The server is started there or not at all,
	// whatever the path leads to by then. Nil: Dir is followed as it stands. It stays the caller's to close.
	Folder *os.File

	Sandbox Sandbox

	// Started is called with the process as soon as it exists, before the server can have a visible effect and before
	// Start returns. The process may still end in between. nil: it is not called.
	Started func(*Process)

	// Stderr receives what the server writes to standard error, line by line, cut at 1 KiB, with control characters
	// escaped, at most 300 lines a minute; suppressed lines are counted in a line of their own. It is called from one
	// goroutine, never after Done is closed, and must not block. nil: standard error goes to the null device.
	Stderr func(line string)
}

// Options configure a [Runner]. The zero value works.
type Options struct {
	Self string // path of the doorward binary; default /proc/self/exe, on macOS what os.Executable says
	// Image is the program of supervisors, an ELF file that runs what package process runs
	// when it is imported. Empty: it is Self, which needs more memory and time.
	Image string
	Max   int // children alive at once; default 64, negative: no limit

	// Hide are files and directories that no contained server sees, whatever it is granted: Doorward's own state, sockets, keys
	// and configuration.
	Hide []string
	// Cgroups allows to divide the cgroup of this process, where it was delegated to us, for the limits of contained servers.
	// It moves this process into one below.
	Cgroups bool
	// Homes are the home directories of which contained servers see programs alone; default that of $HOME. The first is where
	// a server's private home is, unless its environment says otherwise.
	Homes []string
	// Private is the directory below which Sandbox.Home is a path.
	Private string
	Log     *slog.Logger

	// The ladder of Process.Stop: standard input is closed at once, SIGTERM follows after Stdin (default 1.5 s), SIGKILL to
	// everything after a further Term (default 3.5 s). A supervisor that has not obeyed after a further LastWatch (default
	// 1 s) is bypassed. With the defaults everything is gone within seven seconds.
	Stdin, Term, LastWatch time.Duration
}

// ExitError is what [Process.Err] returns for a server that did not exit with status 0.
type ExitError struct {
	// Code is the server's exit status; 128+N when signal N ended it. 125 to 127 also say, as with a shell, that it could
	// not be started, with the reason on its standard error.
	Code int
	// Limit says which limit the server exceeded, and was ended for, and by how much.
	Limit string
	// Supervisor: the supervisor was killed, and nothing is known of the server but that its main process died with it.
	Supervisor bool
}

func (e *ExitError) Error() string {
	switch {
	case e.Limit != "":
		return "ended for exceeding its " + e.Limit
	case e.Supervisor:
		return fmt.Sprintf("supervisor killed by signal %d", e.Code-128)
	case e.Code > 128 && e.Code <= 128+64:
		return fmt.Sprintf("exit status %d (signal %d)", e.Code, e.Code-128)
	}
	return fmt.Sprintf("exit status %d", e.Code)
}
