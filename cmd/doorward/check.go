package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/daemon/policycheck"
	"github.com/doorward/doorward/internal/downstream/authn"
	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// newCheck returns the command that reports every problem of the configuration and the
// policy, and every failing test of the policy, without starting anything.
func newCheck() *cobra.Command {
	o := newInvocation()
	o.takesHere, o.unvetted = true, true
	tokenFile := o.set.String("token-file", "", "file with a bearer token for TCP listeners, as for serve")
	return o.command("check [--token-file F] [--json]", "check the configuration without starting", "doorward check --config doorward.yaml", 0, 0,
		func(context.Context, []string) error { return check(o, *tokenFile) })
}

func check(o *invocation, tokenFile string) error {
	if o.noTokenFile() {
		return errNoTokenFile
	}
	problems := o.allProblems(tokenFile)
	ok := config.OK(problems)
	text := "ok\n"
	if !ok {
		text = ""
	}
	if !o.json {
		sayProblems(problems)
	}
	if err := o.print(map[string]any{"ok": ok, "problems": problems}, text); err != nil || ok {
		return err
	}
	return &failure{status: exitFailed, err: errors.New("the configuration has problems"), quiet: true}
}

// allProblems returns the problems of the configuration, the policy, the listeners and the
// sandboxes.
func (o *invocation) allProblems(tokenFile string) []config.Problem {
	w := o.loadWhole()
	problems := append([]config.Problem{}, w.problems...)
	if c := w.read; c != nil {
		problems = append(problems, w.tried()...)
		problems = append(problems, patternProblems(o.options, c)...)
		problems = append(problems, denyProblems(o.options, c)...)
		problems = append(problems, bindProblems(o.options, c, tokenFile)...)
		problems = append(problems, placeProblems(o.options, c)...)
		problems = append(problems, unsaid(problems, grantProblems(o.options, c))...)
		problems = append(problems, sandboxProblems(o.options, c, tokenFile)...)
	}
	return append(problems, vetting{o.options}.notAllowed(w)...)
}

// denyProblems returns a warning for each pattern of a deny list that matches no tool
// of its server, if the tools are known from an earlier run.
func denyProblems(o *options, c *config.Config) []config.Problem {
	state, err := o.stateDir()
	if err != nil {
		return nil // bindProblems reports it
	}
	var out []config.Problem
	for _, name := range slices.Sorted(maps.Keys(c.Servers)) {
		s := c.Servers[name]
		names, err := pin.Approved(daemon.PinsDir(state), name, pin.Tools)
		if err != nil || len(names) == 0 {
			continue
		}
		for _, p := range policycheck.Unmatched(s.Doorward.Tools.Deny, names) {
			key := "mcpServers." + name + ".doorward.tools.deny"
			out = append(out, config.Problem{File: o.configFile(), Line: config.LineOf(o.configFile(), key), Key: key, Warning: true,
				Problem: fmt.Sprintf("%q matches no tool of this server; list the permitted tools in tools.allow", p)})
		}
	}
	return out
}

// notAllowed returns a warning if serve would refuse the checked configuration because it
// was not allowed.
func (v vetting) notAllowed(w whole) []config.Problem {
	found := v.o.find()
	if !found.Here || w.config == nil {
		return nil
	}
	content, err := hereContent()
	if err == nil {
		err = errors.Join(v.vet(content), v.vetPolicy(w.config))
	}
	if err == nil {
		return nil
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return []config.Problem{{File: found.Path, Problem: first, Warning: true}}
}

// sandboxProblems returns the problems that prevent starting servers in their sandboxes.
func sandboxProblems(o *options, c *config.Config, tokenFile string) []config.Problem {
	state, err := o.stateDir()
	if err != nil {
		return nil // bindProblems reports it
	}
	runtime, err := o.runtimeDir()
	if err != nil {
		return nil
	}
	all := daemon.SandboxProblems(daemon.Options{Config: c, StateDir: state, RuntimeDir: runtime, TokenFile: tokenFile})
	for i := range all {
		all[i].File = o.configFile()
	}
	return all
}

// bindProblems returns the refusals and warnings of the bind table about the listeners.
func bindProblems(o *options, c *config.Config, tokenFile string) []config.Problem {
	var out []config.Problem
	state, err := o.stateDir()
	if err != nil {
		return []config.Problem{{File: o.configFile(), Problem: err.Error()}}
	}
	cred := daemon.Credential(authn.New(authn.Options{Env: secret.New(os.Getenv("DOORWARD_TOKEN")), File: tokenFile, Store: authn.NewStore(state)}), c)
	at := -1
	for _, s := range daemon.Specs(c) {
		if s.Network == "tcp" {
			at++
		}
		d := listen.Plan(s, cred)
		if runtime, err := o.runtimeDir(); s.Network == "unix" && err == nil {
			if _, err := listen.SocketPath(s.Addr, runtime); err != nil {
				out = append(out, o.problemAt("listen.unix", err.Error()))
			}
		}
		p := o.problemAt(fmt.Sprintf("listen.http[%d].addr", max(at, 0)), s.Addr+": "+d.Reason)
		if d.Listen {
			if d.Warning == "" {
				continue
			}
			p.Problem, p.Warning = s.Addr+": "+d.Warning, true
		}
		out = append(out, p)
	}
	return out
}

// newSchema returns the command that prints the JSON Schema of the configuration.
func newSchema() *cobra.Command {
	return newInvocation().command("schema", "print the JSON Schema of doorward.yaml", "doorward schema > doorward.schema.json", 0, 0,
		func(context.Context, []string) error {
			b, err := config.Schema()
			if err != nil {
				return err
			}
			_, err = stdout().Write(append(b, '\n'))
			return err
		})
}
