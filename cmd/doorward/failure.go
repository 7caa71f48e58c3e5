package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/client"
)

// The exit statuses of the command line.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 3
	exitAway    = 4
)

// failure is an error with its exit status. A quiet failure is not printed,
// because its command has already reported it.
type failure struct {
	status int
	err    error
	quiet  bool
}

func (f *failure) Error() string { return f.err.Error() }

func (f *failure) Unwrap() error { return f.err }

func fail(status int, format string, a ...any) error {
	return &failure{status: status, err: fmt.Errorf(format, a...)}
}

var (
	errUsage       = errors.New("wrong usage")
	errNoTokenFile = fmt.Errorf("%w: --token-file names no file", errUsage)
)

// report prints the error of a command and returns the exit status.
func report(c *cobra.Command, err error) int {
	var f *failure
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errUsage):
		sayError(err)
		fmt.Fprintf(stderr(), "doorward: hint: %s (see %s --help)\n", c.UseLine(), c.CommandPath())
		return exitUsage
	case errors.As(err, &f):
		if !f.quiet {
			sayError(f.err)
		}
		return f.status
	}
	sayError(err)
	if e, ok := errors.AsType[*client.AdminError](err); ok && e.Status == http.StatusServiceUnavailable {
		fmt.Fprintln(stderr(), "doorward: hint:", unavailable)
	}
	if errors.Is(err, client.ErrNoDaemon) {
		hint := "start it with `doorward serve`"
		if errors.Is(err, fs.ErrPermission) {
			hint = "its socket is for its own user: give the command as that user, or use a listener with a token"
		}
		fmt.Fprintln(stderr(), "doorward: hint:", hint)
		return exitAway
	}
	if errors.Is(err, client.ErrNotOurs) {
		fmt.Fprintln(stderr(), "doorward: hint: set the state directory of the intended daemon with --state-dir or DOORWARD_STATE_DIR, and check which process listens there")
	}
	return exitFailed
}

// sayError prints an error. It indents all lines after the first, so that none of them
// looks like a message of its own.
func sayError(err error) {
	fmt.Fprintf(stderr(), "doorward: error: %s\n", strings.ReplaceAll(err.Error(), "\n", "\n  "))
}

// unavailable is what a 503 of the local API means.
const unavailable = "its database or its audit log does not work, such as on a full disk; `doorward status` says why"

// unexplained returns the error for a failure of the daemon that no code explains. An act that
// must be recorded, or for which the daemon must know its agents, is refused with 503 while
// the audit log or the database does not work.
func unexplained(e *client.AdminError) error {
	if e.Status == http.StatusServiceUnavailable {
		return fail(exitFailed, "%w: its database or its audit log does not work; `doorward status` says why", e)
	}
	return fail(exitFailed, "%w", e)
}
