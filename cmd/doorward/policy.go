package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/daemon/policycheck"
	"github.com/doorward/doorward/internal/trust/policy"
)

// whole is a configuration with its policy, as the daemon uses it.
type whole struct {
	config   *config.Config // nil: unusable
	read     *config.Config // config without regard to the policy; nil: the file itself is unusable
	policy   *policy.Set
	problems []config.Problem
	files    []string // the files that it was read from, and the secrets that could not be read
}

// loadWhole reads the configuration and the policy file with the checks of the daemon.
func (o *options) loadWhole() whole {
	found := o.find()
	file := found.Path
	c, problems := o.loadFrom(found)
	w := whole{config: c, read: c, problems: problems, files: []string{file}}
	if c == nil {
		return w
	}
	w.files = append(w.files, c.Unread...)
	if c.Policy != "" {
		w.files = append(w.files, c.Policy, config.PolicyTestsFile(c.Policy))
	}
	err := c.ReadPolicy(o.opener())
	if err == nil && found.Here && !o.unvetted {
		err = vetting{o}.vetPolicy(c)
	}
	if err != nil {
		w.config = nil
		w.problems = append(w.problems, o.problemAt("policy", err.Error()))
		return w
	}
	set, wrong := daemon.Policy(c, uint32(os.Geteuid()))
	w.problems = append(w.problems, policyProblems(wrong)...)
	if w.policy = set; set == nil {
		w.config = nil
	}
	return w
}

// opener returns the function that opens the files of the configuration; nil: os.Open.
func (o *options) opener() func(string) (*os.File, error) {
	if o.pins == nil {
		return nil
	}
	return o.pins.open
}

func policyProblems(found []policy.Problem) []config.Problem {
	var out []config.Problem
	for _, p := range found {
		out = append(out, config.Problem{File: p.File, Line: p.Line, Key: p.Key, Problem: p.Text, Warning: p.Warning})
	}
	return out
}

// tried runs the tests of the policy file and returns their problems.
func (w whole) tried() []config.Problem {
	if w.policy == nil || w.config.Policy == "" {
		return nil
	}
	trials, problems := config.PolicyTests(w.config.Policy)
	return append(problems, policyProblems(policycheck.Try(w.policy, config.PolicyTestsFile(w.config.Policy), trials))...)
}

// triedForServing is tried with warnings: a failing test does not prevent serving.
func (w whole) triedForServing() []config.Problem {
	problems := w.tried()
	for i := range problems {
		problems[i].Warning = true
	}
	return problems
}

// newPolicy returns the command that prints the policy in force: that of the daemon, or
// without a daemon that of the configuration on disk.
func newPolicy() *cobra.Command {
	o := newInvocation()
	return o.command("policy [--json]", "print the policy in force, as Cedar", "doorward policy > policy.cedar", 0, 0,
		func(ctx context.Context, _ []string) error {
			var p admin.Policy
			err := o.daemon.ask(ctx, "/admin/v1/policy", &p)
			if errors.Is(err, client.ErrNoDaemon) {
				fmt.Fprintln(stderr(), "doorward: no daemon is running: this is the policy of the configuration on disk")
				p.Text, err = policyOnDisk(o.options)
			}
			if err != nil {
				return err
			}
			return o.print(p, p.Text)
		})
}

func policyOnDisk(o *options) (string, error) {
	w := o.loadWhole()
	sayProblems(w.problems)
	if w.policy == nil {
		return "", fail(exitFailed, "the configuration has problems")
	}
	return daemon.PolicyText(w.config), nil
}
