// Package process runs stdio servers: it starts them, keeps track of all processes that they start, and ends all of
// them.
//
// A server is never the daemon's own child. Between the two is a supervisor: a small program with only this package
// ([Options].Image), or the doorward binary with the hidden subcommand child-supervisor. It is the subreaper of
// everything below it; the server gets the stdio pipes directly. The invariant: when the server's main process ends,
// when [Process.Stop] has taken its last step, or when the daemon is gone in whatever way (the supervisor sees its
// control pipe close), every descendant of the server is killed, including those that made sessions of their own or
// were orphaned.
//
// A contained server (see [Sandbox]; docs/sandbox.md has the whole) has a second stage between the supervisor and
// itself: process 1 of its own pid, mount, ipc and uts namespaces and, unless root has to do without, its own user
// namespace. The server cannot signal, trace or outlive it. The invariant: a server starts only if its namespaces,
// hidden paths and no_new_privs hold; [Process.Sandbox] says which of the other measures hold.
//
// Accepted limits of a server that is not contained: it runs under the daemon's uid and can do to its supervisor what
// one process of a user may do to another, which is SIGKILL, SIGSTOP, ptrace and prlimit. If the supervisor is
// killed, the server's main process dies too (parent-death signal), but not the processes that it started. A stopped
// supervisor is continued, and in the end bypassed, by the daemon, but its processes stay if the daemon is gone too.
// A descendant of another uid (sudo) cannot be signalled at all. macOS has no subreaper: only the server's own
// process group is ended, and a process that calls setsid escapes.
//
// Commands, arguments and environments come only from the operator's configuration; no shell is used.
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
	DefaultMax       = 256
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
	Path   string   // absolute path of the program, from Resolve; also argv[0]
	Args   []string // arguments after argv[0]
	Env    []string // the complete environment, made by Environment
	Dir    string   // working directory; empty: Sandbox.Home, and without one the daemon's
	// Folder is the working directory itself, from OpenFolder, and Dir its path. The server is started in Folder or
	// not at all, even if the path leads elsewhere by then. nil: Dir is used as a path. The caller closes it.
	Folder *os.File

	Sandbox Sandbox

	// Started is called with the process as soon as it exists, before the server can have a visible effect and before
	// Start returns. The process may still end in between. nil: it is not called.
	Started func(*Process)

	// Stderr receives the server's standard error line by line, cut at 1 KiB, with control characters escaped, at
	// most 300 lines a minute; suppressed lines are counted in a line of their own. It is called from one goroutine,
	// never after Done is closed, and must not block. nil: standard error goes to the null device.
	Stderr func(line string)
}

// Options configures a [Runner]. The zero value works.
type Options struct {
	Self string // path of the doorward binary; default /proc/self/exe, on macOS os.Executable
	// Image is the program of supervisors, an ELF file that imports this package. Empty: Self is used, which needs
	// more memory and time.
	Image string
	Max   int // children alive at once; default 256, negative: no limit

	// Hide lists files and directories that no contained server sees, even if they are granted: Doorward's own state,
	// sockets, keys and configuration.
	Hide []string
	// Cgroups allows the runner to divide the cgroup of this process, if it was delegated, for the limits of
	// contained servers. It moves this process into a cgroup below.
	Cgroups bool
	// Homes lists the home directories of which contained servers see only programs; default: that of $HOME. A
	// server's private home is at the path of the first one, unless its environment sets another home.
	Homes []string
	// Private is the directory that Sandbox.Home is relative to.
	Private string
	Log     *slog.Logger

	// The steps of Process.Stop: standard input is closed at once, SIGTERM follows after Stdin (default 1.5 s),
	// SIGKILL to all processes after a further Term (default 3.5 s). A supervisor that has not obeyed after a further
	// LastWatch (default 1 s) is bypassed. With the defaults all are gone within seven seconds.
	Stdin, Term, LastWatch time.Duration
}

// ExitError is the error of [Process.Err] for a server that did not exit with status 0.
type ExitError struct {
	// Code is the server's exit status; 128+N when signal N ended it. As in a shell, 125 to 127 can also mean that it
	// could not be started; standard error then has the reason.
	Code int
	// Limit is the limit for which the server was ended, and its use; empty: none.
	Limit string
	// Supervisor: the supervisor was killed. The server's main process died with it; nothing else is known of the
	// server.
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
