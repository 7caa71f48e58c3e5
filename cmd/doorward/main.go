// Doorward is a daemon between AI agents and the MCP servers that they use: it
// authenticates the caller, decides what the caller may do, carries the call, and keeps a
// record. This command is the daemon and all commands for its users.
//
// Data is written to stdout, messages to stderr. Exit status: 0 done, 1 failed, 2 wrong
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
)

// newRoot returns the root command. Each call makes new commands with new flags.
func newRoot() *cobra.Command {
	root := group("doorward COMMAND [arguments]", "a daemon between AI agents and MCP servers",
		newServe(), newConnect(), newTools(), newCall(), newStatus(), newCheck(), newAllow(), newSchema(), newVersion(),
		newWhoami(), newExplain(), newPolicy(), newLogin(), newLogout(), newTrust(), newToken(), newAgent(), newAuth(),
		newInstructions(), newAudit(), newHistory(), newDoctor(), newUI(), newPending(), newApprove(), newDeny(), newApprovals(), newRestart(), newImport(), newInstall(), newUninstall(), newMan())
	root.Example = "doorward serve &\ndoorward tools\ndoorward call notes add_note title=Milk"
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Flags().Bool("version", false, "print the version")
	root.Version = version
	root.SetVersionTemplate("doorward {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	root.SetHelpCommand(newHelp(root))
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { fmt.Fprintf(people(), "%s\n\n%s", c.Short, usageText(c)) })
	root.SetUsageFunc(func(c *cobra.Command) error {
		_, err := fmt.Fprint(stderr(), usageText(c))
		return err
	})
	root.SetOut(stdout())
	root.SetErr(stderr())
	describeCompletion(root)
	return root
}

// describeCompletion adds cobra's completion command, with help and errors of the form that
// all other commands have.
func describeCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	c, _, _ := root.Find([]string{"completion"})
	c.Use, c.Short, c.DisableFlagsInUseLine, c.Args, c.RunE = "completion SHELL", "print the completion script of a shell", true, cobra.ArbitraryArgs, unknown
	for _, shell := range c.Commands() {
		shell.Short, shell.DisableFlagsInUseLine = "print the completion script of "+shell.Name(), true
		shell.Example = "doorward completion " + shell.Name() + " > FILE"
	}
}

func main() {
	// The HTTP client logs unsolicited responses of servers through package log, unescaped.
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
	if err != nil && !errors.Is(err, errUsage) && strings.HasPrefix(c.CommandPath()+" ", "doorward completion ") { // cobra's own command, which fails only on wrong arguments
		err = fmt.Errorf("%w: %w", errUsage, err)
	}
	return report(c, err)
}

// newHelp returns the command that prints the help of another command.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{Use: "help [COMMAND…]", Short: "print the help of a command", Hidden: true, DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				if c == nil || len(rest) == 0 {
					c, rest = root, args
				}
				return unknown(c, rest)
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		}}
}

func newVersion() *cobra.Command {
	o := newInvocation()
	return o.command("version [--json]", "print the version", "doorward version", 0, 0,
		func(context.Context, []string) error {
			return o.printUnbroken(map[string]string{"version": version}, "doorward "+version+"\n")
		})
}
