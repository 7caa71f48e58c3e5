package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/doorward/doorward/internal/authn"
	"github.com/doorward/doorward/internal/config"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/listen"
	"github.com/doorward/doorward/internal/secret"
)

// check reports every problem of the configuration and the policy, and every
// test of the policy that fails, without starting anything.
func check(_ context.Context, args []string) error {
	o := newOptions("check")
	tokenFile := o.set.String("token-file", "", "as for serve")
	if _, err := o.parse(args); err != nil {
		return err
	}
	w := o.loadWhole()
	problems := w.problems
	if c := w.config; c != nil {
		problems = append(problems, w.tried()...)
		problems = append(problems, patternProblems(c)...)
		problems = append(problems, bindProblems(o, c, *tokenFile)...)
	}
	if problems == nil {
		problems = []config.Problem{}
	}
	ok := config.OK(problems)
	if o.json {
		if err := printJSON(map[string]any{"ok": ok, "problems": problems}); err != nil {
			return err
		}
	} else {
		for _, p := range problems {
			fmt.Fprintln(stderr(), p)
		}
	}
	if !ok {
		return &failure{status: exitFailed, err: errors.New("the configuration has problems"), quiet: true}
	}
	if !o.json {
		fmt.Fprintln(stdout(), "ok")
	}
	return nil
}

// bindProblems is what the bind table says of each listener.
func bindProblems(o *options, c *config.Config, tokenFile string) []config.Problem {
	var out []config.Problem
	state, err := o.stateDir()
	if err != nil {
		return []config.Problem{{File: o.configFile(), Problem: err.Error()}}
	}
	cred := daemon.Credential(authn.New(authn.Options{Env: secret.New(os.Getenv("DOORWARD_TOKEN")), File: tokenFile, Store: authn.NewStore(state)}), c)
	for _, s := range daemon.Specs(c) {
		d := listen.Plan(s, cred)
		p := config.Problem{File: o.configFile(), Key: "listen", Problem: s.Addr + ": " + d.Reason}
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

// schema prints the JSON Schema of the configuration.
func schema(context.Context, []string) error {
	b, err := config.Schema()
	if err != nil {
		return err
	}
	_, err = stdout().Write(append(b, '\n'))
	return err
}
