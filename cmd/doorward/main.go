// Doorward stands between AI agents and the MCP servers they use: it knows
// who is calling, decides what they may do, carries the call, and keeps a
// record. This command is the daemon and everything a person does with it.
//
// Data goes to stdout, talk to stderr. Exit status: 0 done, 1 failed, 2 wrong
// usage, 3 refused, 4 no daemon.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

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

// version is set by the release build.
var version = "0.1.0-dev"

// newRoot builds the command line. Each call makes commands with flags of
// their own.
func newRoot() *cobra.Command {
	root := group("doorward COMMAND [arguments]", "a daemon between AI agents and MCP servers",
		newServe(), newConnect(), newTools(), newCall(), newStatus(), newCheck(), newAllow(), newSchema(), newVersion(),
		newWhoami(), newExplain(), newPolicy(), newLogin(), newLogout(), newTrust(), newToken(), newAgent(), newAuth(),
		newInstructions(), newAudit(), newHistory(), newDoctor(), newUI(), newPending(), newApprove(), newDeny(), newApprovals(), newRestart(), newImport(), newInstall(), newUninstall(), newMan())
	root.Example = "doorward serve &\ndoorward tools\ndoorward call notes add_note text=hello"
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Flags().Bool("version", false, "print the version")
	root.Version = version
	root.SetVersionTemplate("doorward {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { fmt.Fprintf(people(), "%s\n\n%s", c.Short, usageText(c)) })
	root.SetUsageFunc(func(c *cobra.Command) error {
		_, err := fmt.Fprint(stderr(), usageText(c))
		return err
	})
	root.SetOut(stdout())
	root.SetErr(stderr())
	return root
}

func main() {
	// The HTTP client logs unsolicited responses of servers there, unescaped.
	log.SetOutput(io.Discard)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	root := newRoot()
	if len(args) == 0 {
		_ = root.Usage()
		return exitUsage
	}
	root.SetArgs(doubleDashed(root, args))
	c, err := root.ExecuteContextC(ctx)
	if err != nil && strings.HasPrefix(c.CommandPath()+" ", "doorward completion ") { // cobra's own, which only fails on its arguments
		err = fmt.Errorf("%w: %w", errUsage, err)
	}
	return report(c, err)
}

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
	if errors.Is(err, client.ErrNoDaemon) {
		fmt.Fprintln(stderr(), "doorward: hint: start it with `doorward serve`")
		return exitAway
	}
	if errors.Is(err, client.ErrNotOurs) {
		fmt.Fprintln(stderr(), "doorward: hint: set the state directory of the intended daemon with --state-dir or DOORWARD_STATE_DIR, and check which process listens there")
	}
	return exitFailed
}

// sayError indents the further lines of an error, so that none of them looks
// like a line of this program.
func sayError(err error) {
	fmt.Fprintf(stderr(), "doorward: error: %s\n", strings.ReplaceAll(err.Error(), "\n", "\n  "))
}

func newVersion() *cobra.Command {
	return newInvocation().command("version", "print the version", "doorward version", 0, 0,
		func(context.Context, []string) error {
			_, err := fmt.Fprintln(stdout(), "doorward", version)
			return err
		})
}
