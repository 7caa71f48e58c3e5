package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/client"
)

// invocation is one run of a command: its flags and its connection to the
// daemon.
type invocation struct {
	*options
	daemon daemonLink
}

func newInvocation() *invocation {
	o := newOptions()
	return &invocation{options: o, daemon: daemonLink{o: o}}
}

// many is the most arguments of a command that takes any number.
const many = 1 << 20

// command returns a command that takes from least to most arguments and the
// flags of o.
func (o *invocation) command(use, short, example string, least, most int, run func(context.Context, []string) error) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Example: example, DisableFlagsInUseLine: true,
		Args: argumentsOf(use, least, most),
		RunE: func(c *cobra.Command, args []string) error {
			defer o.daemon.close()
			return run(c.Context(), args)
		}}
	c.Flags().AddFlagSet(o.set)
	return c
}

// group returns a command that only has commands below it.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, DisableFlagsInUseLine: true, Args: cobra.ArbitraryArgs, RunE: unknown,
		SuggestionsMinimumDistance: 2}
	c.AddCommand(below...)
	return c
}

// unknown runs for a group when the command below it is missing or does not exist.
func unknown(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		var names []string
		for _, below := range c.Commands() {
			names = append(names, below.Name())
		}
		return fmt.Errorf("%w: one of %s", errUsage, strings.Join(names, ", "))
	}
	text := fmt.Sprintf("unknown command %q", args[0])
	meant := deeper(c, args[0])
	if meant == nil {
		meant = c.SuggestionsFor(args[0])
	}
	if len(meant) > 0 {
		text += "; did you mean " + strings.Join(meant, " or ") + "?"
	}
	return fmt.Errorf("%w: %s", errUsage, text)
}

// deeper returns the commands of this name in the groups below c, with the name of their group.
func deeper(c *cobra.Command, name string) (found []string) {
	for _, below := range c.Commands() {
		for _, command := range below.Commands() {
			if command.Name() == name {
				found = append(found, below.Name()+" "+name)
			}
		}
	}
	return found
}

// doubleDashed returns the arguments with a second dash for long flags that have one, such
// as -json, so that both forms are accepted. The value of a flag is not changed.
func doubleDashed(root *cobra.Command, args []string) []string {
	c, _, err := root.Find(args)
	if err != nil {
		return args
	}
	args = slices.Clone(args)
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		name, _, valued := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		f := c.Flags().Lookup(name)
		if f == nil || args[i][0] != '-' {
			continue
		}
		if args[i][1] != '-' && len(name) > 1 {
			args[i] = "-" + args[i]
		}
		if !valued && f.NoOptDefVal == "" {
			i++
		}
	}
	return args
}

// usageText returns the usage of a command: its form, the commands below it, an example
// and its flags.
func usageText(c *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: %s\n", c.UseLine())
	if c.HasAvailableSubCommands() {
		b.WriteString("\ncommands:\n")
	}
	for _, below := range c.Commands() {
		if below.IsAvailableCommand() {
			fmt.Fprintf(&b, "  %-*s  %s\n", below.NamePadding(), below.Name(), below.Short)
		}
	}
	if c.HasExample() {
		fmt.Fprintf(&b, "\nexample:\n  %s\n", strings.ReplaceAll(c.Example, "\n", "\n  "))
	}
	if c.HasAvailableLocalFlags() {
		fmt.Fprintf(&b, "\nflags:\n%s", c.LocalFlags().FlagUsages())
	}
	return b.String()
}

// daemonLink is the connection of a command to the daemon. It is opened on first
// use and closed when the command ends.
type daemonLink struct {
	o      *options
	client *client.Client
}

// connect returns the connection to the daemon.
func (l *daemonLink) connect() (c *client.Client, err error) {
	if l.client == nil {
		l.client, err = l.o.dial()
	}
	return l.client, err
}

func (l *daemonLink) close() {
	if l.client != nil {
		l.client.Close()
		l.client = nil
	}
}

// ask reads a resource of the local API into out.
func (l *daemonLink) ask(ctx context.Context, path string, out any) error {
	c, err := l.connect()
	if err != nil {
		return err
	}
	return c.Admin(ctx, path, out)
}

// tell posts in to a resource of the local API and reads the answer into out.
func (l *daemonLink) tell(ctx context.Context, path string, in, out any) error {
	c, err := l.connect()
	if err != nil {
		return err
	}
	return c.AdminPost(ctx, path, in, out)
}

// auth calls a resource of instruction delivery.
func (l *daemonLink) auth(ctx context.Context, method, path string, in, out any) error {
	c, err := l.connect()
	if err != nil {
		return err
	}
	return deliveryFailure(c.Auth(ctx, method, path, "", in, out))
}

// authPost is auth with the method POST.
func (l *daemonLink) authPost(ctx context.Context, path string, in, out any) error {
	return l.auth(ctx, http.MethodPost, path, in, out)
}

// print writes v as JSON if --json is given, and text otherwise.
func (o *invocation) print(v any, text string) error {
	to := people()
	if o.verbose {
		to = stdout()
	}
	return o.printTo(to, v, text)
}

// printUnbroken is print for an address or a token. A person copies it, so its line is not
// broken at a narrow terminal.
func (o *invocation) printUnbroken(v any, text string) error { return o.printTo(stdout(), v, text) }

func (o *invocation) printTo(to io.Writer, v any, text string) error {
	if o.json {
		return printJSON(v)
	}
	_, err := fmt.Fprint(to, text)
	return err
}
