package main

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/upstream/process"
)

// newAllow returns the command that shows which programs ./doorward.yaml runs, and records
// that exactly this content may be used in this directory.
func newAllow() *cobra.Command {
	o := newInvocation()
	yes := o.set.Bool("yes", false, "allow without asking")
	revoke := o.set.Bool("revoke", false, "revoke the permission")
	return o.command("allow [--yes] [--revoke]", "show what the doorward.yaml of this directory runs, and allow its present content",
		"doorward allow", 0, 0, func(context.Context, []string) error { return allowHere(o, *yes, *revoke) })
}

func allowHere(o *invocation, yes, revoke bool) error {
	path, err := hereOf()
	if err != nil {
		return err
	}
	store, err := vetting{o.options}.allowances()
	if err != nil {
		return err
	}
	if revoke {
		return revokeAllowance(store, path)
	}
	a, text, err := preview(path)
	if err != nil {
		return err
	}
	fmt.Fprint(people(), text)
	if !yes {
		switch yes, asked := confirm(bufio.NewReader(os.Stdin), "allow this configuration to run?"); {
		case !asked:
			return fail(exitRefused, "not allowed: check the output above and use --yes, or run this from a terminal")
		case !yes:
			return fail(exitRefused, "not allowed")
		}
	}
	if err := store.keep(a); err != nil {
		return err
	}
	fmt.Fprintf(stderr(), "doorward: the present content of %s is allowed\n", plaintext.Line(path))
	return nil
}

func revokeAllowance(store allowances, path string) error {
	was, err := store.forget(path)
	switch {
	case err != nil:
		return err
	case !was:
		return fail(exitFailed, "%s was not allowed", plaintext.Line(path))
	}
	fmt.Fprintf(stderr(), "doorward: %s is no longer allowed; a running daemon keeps using it\n", plaintext.Line(path))
	return nil
}

// preview reads the configuration without fetching any of its secrets. It returns the
// allowance to record and the text that a person needs to decide about it.
func preview(path string) (a allowance, text string, err error) {
	var content []byte
	none := func(string) (secret.Value, error) { return secret.New("-"), nil }
	c, problems := config.Load(config.Here, config.Options{
		Env: lookup, CheckURL: checkURL, ResolveCommand: process.Resolve, File: none,
		Keyring: func(string, string) (secret.Value, error) { return none("") },
		Vet:     func(b []byte) error { content = b; return nil }})
	sayProblems(problems)
	if c == nil {
		return a, "", fail(exitFailed, "./%s cannot be allowed: it has problems", config.Here)
	}
	if err := c.ReadPolicy(nil); err != nil {
		return a, "", fail(exitFailed, "./%s cannot be allowed: its policy cannot be read: %v", config.Here, err)
	}
	var written allowed
	if err := yaml.Unmarshal(content, &written); err != nil {
		return a, "", fail(exitFailed, "./%s cannot be shown: %v", config.Here, err)
	}
	a = allowance{Path: path, Config: digest(content), Policy: policyDigest(c), Allowed: time.Now().UTC()}
	return a, written.text(path, c), nil
}

// allowed holds the parts of a configuration that are shown as they are written, with
// references instead of their values.
type allowed struct {
	Servers map[string]allowedProgram `yaml:"mcpServers"`
	Agent   struct {
		Launchers map[string]allowedProgram
	}
}

type allowedProgram struct {
	Command, URL, Cwd, Sandbox string
	Args                       []string
	Env                        map[string]string
	Doorward                   struct{ Sandbox string }
}

func (w allowed) text(path string, c *config.Config) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", plaintext.Line(path))
	for _, name := range slices.Sorted(maps.Keys(w.Servers)) {
		w.Servers[name].show(&b, "server", name)
	}
	for _, name := range slices.Sorted(maps.Keys(w.Agent.Launchers)) {
		w.Agent.Launchers[name].show(&b, "launcher", name)
	}
	if c.Policy != "" {
		fmt.Fprintf(&b, "  policy %s: its present content is allowed\n", plaintext.Line(c.Policy))
	}
	if i := c.Instructions; i.URL != "" {
		fmt.Fprintf(&b, "  instructions from %s\n", plaintext.Line(i.URL))
	} else if exists(i.Dir) {
		fmt.Fprintf(&b, "  instructions %s: read whenever they change\n", plaintext.Line(i.Dir+string(filepath.Separator)))
	}
	return b.String()
}

func (p allowedProgram) show(b *strings.Builder, kind, name string) {
	what := append([]string{p.Command}, p.Args...)
	if p.Command == "" {
		what = []string{p.URL}
	}
	fmt.Fprintf(b, "  %s %s:", kind, plaintext.Line(name))
	for _, word := range what {
		fmt.Fprintf(b, " %s", shellWord(word))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		fmt.Fprintf(b, "  %s=…", plaintext.Line(name))
	}
	if p.Cwd != "" {
		fmt.Fprintf(b, "  (in %s)", shellWord(p.Cwd))
	}
	if p.Sandbox == process.Off || p.Doorward.Sandbox == process.Off {
		b.WriteString("  (sandbox: off, has all rights of your user)")
	}
	b.WriteString("\n")
}

// shellWord returns a word of a command, in quotes if its end would not be visible.
func shellWord(word string) string {
	if word == "" || strings.ContainsAny(word, " \t\"'\\") || plaintext.Line(word) != word {
		return fmt.Sprintf("%+q", word)
	}
	return word
}
