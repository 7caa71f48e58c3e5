package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/onboard"
)

// newInstall returns the command that adds Doorward to clients' own files.
func newInstall() *cobra.Command {
	return newOnClients("install", "add Doorward to the configuration files of clients",
		func(o *invocation, c *onboard.Client, path string) (onboard.Change, error) {
			command, args, err := connectLine(o)
			if err != nil {
				return onboard.Change{}, err
			}
			return onboard.Install(c, path, command, args)
		})
}

// newUninstall returns the command that removes Doorward from clients' own files.
func newUninstall() *cobra.Command {
	return newOnClients("uninstall", "remove Doorward from the configuration files of clients",
		func(_ *invocation, c *onboard.Client, path string) (onboard.Change, error) {
			return onboard.Uninstall(c, path)
		})
}

// newOnClients returns a command that plans a change for each named client and makes it.
func newOnClients(name, short string, plan func(*invocation, *onboard.Client, string) (onboard.Change, error)) *cobra.Command {
	o := newInvocation()
	project := o.set.Bool("project", false, "change the project's file in the working directory instead of the user's")
	yes := o.set.Bool("yes", false, "write without asking")
	c := o.command(name+" CLIENT… [--project] [--yes]", short, "doorward "+name+" claude-code cursor", 1, many,
		func(_ context.Context, args []string) error {
			var all []onboard.Change
			for _, name := range args {
				change, err := planned(o, name, *project, plan)
				if err != nil {
					return err
				}
				all = append(all, change)
			}
			return (&outcome{changes: all}).settle(o, *yes)
		})
	c.ValidArgs = clientNames()
	return c
}

func clientNames() []string {
	var names []string
	for _, c := range onboard.Clients() {
		names = append(names, c.Name)
	}
	return names
}

func planned(o *invocation, name string, project bool, plan func(*invocation, *onboard.Client, string) (onboard.Change, error)) (onboard.Change, error) {
	c := onboard.Find(name)
	if c == nil {
		return onboard.Change{}, fmt.Errorf("%w: unknown client %q; one of %s", errUsage, name, strings.Join(clientNames(), ", "))
	}
	p, err := placesHere()
	if err != nil {
		return onboard.Change{}, err
	}
	find := p.User
	if project {
		find = p.Project
	}
	path, err := find(c)
	if errors.Is(err, onboard.ErrScope) {
		return onboard.Change{}, fmt.Errorf("%w: %s has no file for a project; leave --project out", errUsage, c.Title)
	} else if err != nil {
		return onboard.Change{}, fmt.Errorf("finding the file of %s: %w", c.Title, err)
	}
	return plan(o, c, path)
}

func placesHere() (onboard.Places, error) {
	dir, err := os.Getwd()
	if err != nil {
		return onboard.Places{}, fmt.Errorf("finding the working directory: %w", err)
	}
	return onboard.Places{Env: lookup, OS: runtime.GOOS, Dir: dir}, nil
}

// connectLine returns the command that a client runs: this program with `connect`, and the
// paths that this command line names.
func connectLine(o *invocation) (command string, args []string, err error) {
	if command, err = os.Executable(); err != nil {
		return "", nil, fmt.Errorf("finding this program: %w", err)
	}
	args = []string{"connect"}
	for _, flag := range []struct{ name, path string }{{"--config", o.config}, {"--state-dir", o.state}, {"--runtime-dir", o.runtime}} {
		if flag.path == "" {
			continue
		}
		path, err := filepath.Abs(flag.path)
		if err != nil {
			return "", nil, err
		}
		args = append(args, flag.name, path)
	}
	return command, args, nil
}

// outcome holds the planned changes of a command to files.
type outcome struct {
	changes []onboard.Change
	notes   []string     // for people
	before  func() error // called before the files are written; may be nil
}

// shownChange is a change as --json prints it. The text of a file that does not exist is null.
type shownChange struct {
	File   string  `json:"file"`
	Client string  `json:"client"`
	Before *string `json:"before"`
	After  *string `json:"after"`
}

// settle shows the changes, and makes them with the consent of the user.
func (out *outcome) settle(o *invocation, yes bool) error {
	shown, text := []shownChange{}, ""
	for _, c := range out.changes {
		if c.Nothing() {
			out.notes = append(out.notes, fmt.Sprintf("%s: nothing to change in %s", c.Client, plaintext.Line(c.File.Path)))
			continue
		}
		s := shownChange{c.File.Path, c.Client, textOf(c.File.Text), textOf(c.After)}
		shown, text = append(shown, s), text+s.diff()
	}
	for _, note := range out.notes {
		fmt.Fprintln(stderr(), "doorward:", note)
	}
	if !o.json {
		fmt.Fprint(stdout(), text)
	}
	refused := consent(o, len(shown) == 0, yes)
	backups, err := out.write(len(shown) > 0 && refused == nil)
	if o.json && err == nil {
		err = printJSON(map[string]any{"changes": shown, "written": len(shown) > 0 && refused == nil, "backups": append([]string{}, backups...), "notes": append([]string{}, out.notes...)})
	}
	if !o.json {
		for _, path := range backups {
			fmt.Fprintf(stderr(), "doorward: the previous file is kept as %s\n", plaintext.Line(path))
		}
	}
	return errors.Join(err, refused)
}

// consent asks whether to make the shown changes; nil: make them, or there are none.
func consent(o *invocation, nothing, yes bool) error {
	if nothing || yes {
		return nil
	}
	if o.json {
		return fail(exitRefused, "nothing was written: use --yes")
	}
	switch yes, asked := confirm(bufio.NewReader(os.Stdin), "write this?"); {
	case !asked:
		return fail(exitRefused, "nothing was written: check the output above and use --yes, or run this from a terminal")
	case !yes:
		return fail(exitRefused, "nothing was written")
	}
	return nil
}

func (out *outcome) write(wanted bool) ([]string, error) {
	if !wanted {
		return nil, nil
	}
	for _, c := range out.changes {
		if err := c.File.Unchanged(); err != nil {
			return nil, err
		}
	}
	if out.before != nil {
		if err := out.before(); err != nil {
			return nil, err
		}
	}
	return onboard.Write(out.changes, time.Now())
}

func textOf(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}

// diff returns the change as a unified diff.
func (s shownChange) diff() string {
	nameA, nameB, a, b := s.File, s.File, "", ""
	if s.Before != nil {
		a = *s.Before
	} else {
		nameA = "/dev/null"
	}
	if s.After != nil {
		b = *s.After
	} else {
		nameB = "/dev/null"
	}
	if a == b {
		return fmt.Sprintf("--- %s\n+++ %s\n", plaintext.Line(nameA), plaintext.Line(nameB))
	}
	return unified(plaintext.Line(nameA), plaintext.Line(nameB), a, b)
}
