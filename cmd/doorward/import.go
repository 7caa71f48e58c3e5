package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/internal/onboard"
	"github.com/doorward/doorward/internal/upstream/process"
)

// newImport returns the command that imports servers from clients' configurations.
func newImport() *cobra.Command {
	o := newInvocation()
	all := o.set.Bool("all", false, "import from every client whose file is found, as without arguments")
	yes := o.set.Bool("yes", false, "write without asking")
	secrets := o.set.String("secrets", "keep", "where to put values that look like secrets: keep, file or keyring")
	c := o.command("import [FILE|CLIENT…|--all] [--secrets keep|file|keyring] [--yes]", "import servers from clients' configurations",
		"doorward import claude-code cursor --secrets file", 0, many,
		func(_ context.Context, args []string) error {
			if *all && len(args) > 0 {
				return fmt.Errorf("%w: use --all or names, not both", errUsage)
			}
			return importServers(o, args, *secrets, *yes)
		})
	c.ValidArgs = clientNames()
	return c
}

func importServers(o *invocation, args []string, where string, yes bool) error {
	places, err := placesHere()
	if err != nil {
		return err
	}
	sources, err := sourcesOf(places, args)
	if err != nil {
		return err
	}
	conf, err := o.ownFile()
	if err != nil {
		return err
	}
	hidden, err := o.hiding(where)
	if err != nil {
		return err
	}
	self, _ := os.Executable() // if it is not known, entries of Doorward are recognised by name only
	im := onboard.Import{Places: places, Self: self, Judge: judged, Refer: hidden.refer, Resolve: hidden.resolve, Lenient: len(args) == 0}
	if where == "keep" {
		im.Refer = nil
	}
	plan, err := im.Plan(sources, conf)
	if err != nil {
		return err
	}
	if problems := spoiled(plan.Change); len(problems) > 0 {
		sayProblems(problems)
		return fail(exitFailed, "nothing was written: the configuration would not load; rename the servers above in the client's file, or add them by hand")
	}
	plan.Notes = append(plan.Notes, warned(plan.Change)...)
	if plan.Change.Client == "" { // no client has servers to import
		plan.Change.Client = "import"
	}
	out := &outcome{changes: []onboard.Change{plan.Change}, notes: plan.Notes, before: func() error { return hidden.keep(plan.Secrets) }}
	return out.settle(o, yes)
}

// sourcesOf returns the files of the arguments, each of which is a client or a file.
// Without arguments these are the files of all clients.
func sourcesOf(p onboard.Places, args []string) ([]onboard.Source, error) {
	if len(args) == 0 {
		return p.Sources(onboard.Clients()), nil
	}
	var out []onboard.Source
	for _, arg := range args {
		if c := onboard.Find(arg); c != nil {
			out = append(out, p.Sources([]*onboard.Client{c})...)
			continue
		}
		if !exists(arg) && !strings.ContainsAny(arg, `./\`) {
			return nil, fmt.Errorf("%w: %q is neither a file nor a client; the clients are %s", errUsage, arg, strings.Join(clientNames(), ", "))
		}
		s, err := p.File(arg)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// ownFile reads the configuration of the user: the one that is named, otherwise that
// of the XDG directory, never that of the working directory.
func (o *options) ownFile() (onboard.File, error) {
	always := func(string) bool { return true }
	found := config.FindConfig(o.config, lookup, func() bool { return false }, always)
	if found.Path == "" {
		return onboard.File{}, config.ErrNoHome
	}
	path, err := filepath.Abs(found.Path)
	if err != nil {
		return onboard.File{}, err
	}
	return onboard.Read(path)
}

// spoiled returns the fatal problems that the configuration has after a change and not before it. No
// secret is fetched.
func spoiled(c onboard.Change) []config.Problem {
	before := map[string]bool{}
	for _, p := range fatalProblems(c.File.Path, c.File.Text) {
		before[p.Key+p.Problem] = true
	}
	return slices.DeleteFunc(fatalProblems(c.File.Path, c.After), func(p config.Problem) bool { return before[p.Key+p.Problem] })
}

func fatalProblems(path string, text []byte) []config.Problem {
	return slices.DeleteFunc(problemsOf(path, text), func(p config.Problem) bool { return !config.Fatal([]config.Problem{p}) })
}

// problemsOf returns the problems of a text in the place of the configuration. No secret is
// fetched.
func problemsOf(path string, text []byte) []config.Problem {
	none := func(string) (secret.Value, error) { return secret.New("-"), nil }
	_, problems := config.Parse(path, filepath.Dir(path), text, config.Options{Env: lookup, CheckURL: checkURL, File: none,
		Keyring: func(string, string) (secret.Value, error) { return none("") }})
	return problems
}

// warned returns a note for each warning that the configuration has after a change and not
// before it, such as that of a server which docker starts.
func warned(c onboard.Change) (notes []string) {
	before := map[string]bool{}
	for _, p := range problemsOf(c.File.Path, c.File.Text) {
		before[p.Key+p.Problem] = true
	}
	for _, p := range problemsOf(c.File.Path, c.After) {
		if p.Warning && !before[p.Key+p.Problem] {
			notes = append(notes, p.Key+": "+p.Problem)
		}
	}
	return notes
}

// judged returns the first problem of a configuration that is not a warning; empty: none.
func judged(text []byte) string {
	dir, err := os.Getwd()
	if err != nil {
		return err.Error()
	}
	_, problems := config.Parse("", dir, text, config.Options{Env: lookup, CheckURL: checkURL, ResolveCommand: process.Resolve})
	for _, p := range problems {
		if !p.Warning {
			return p.Problem
		}
	}
	return ""
}

// hiding stores secrets in files or in the keyring, to which the configuration then refers.
type hiding struct {
	dir  string          // of the files; empty: the keyring
	used map[string]bool // paths that refer has returned
}

func (o *options) hiding(where string) (*hiding, error) {
	if !slices.Contains([]string{"keep", "file", "keyring"}, where) {
		return nil, fmt.Errorf("%w: --secrets is keep, file or keyring", errUsage)
	}
	if where == "keyring" {
		return &hiding{}, nil
	}
	state, err := o.stateDir()
	if err != nil {
		return nil, err
	}
	if state, err = filepath.Abs(state); err != nil {
		return nil, err
	}
	return &hiding{dir: filepath.Join(state, "secrets"), used: map[string]bool{}}, nil
}

// keyringService is the attribute service of the entries that import makes.
const keyringService = "doorward"

// refer returns a reference to a new place for a secret. It does not choose an existing
// file, to which something else may refer.
func (k *hiding) refer(server, key string) string {
	name := server + "." + regexp.MustCompile(`[^A-Za-z0-9_-]+`).ReplaceAllString(key, "-")
	if k.dir == "" {
		return "${keyring:" + keyringService + "/" + name + "}"
	}
	path := filepath.Join(k.dir, name)
	for n := 2; k.used[path] || exists(path); n++ {
		path = filepath.Join(k.dir, fmt.Sprintf("%s-%d", name, n))
	}
	k.used[path] = true
	return "${file:" + path + "}"
}

// resolve returns the value of a text that refers only to secrets stored by import, and any
// other text unchanged.
func (k *hiding) resolve(text string) string {
	t, err := secret.Parse(text)
	if err != nil {
		return text
	}
	for _, r := range t.Refs() {
		ours := r.Kind == secret.File && k.dir != "" && filepath.Dir(r.Name) == k.dir || r.Kind == secret.Keyring && strings.HasPrefix(r.Name, keyringService+"/")
		if !ours {
			return text
		}
	}
	if v, err := t.Resolve(secret.Sources{Env: lookup}); err == nil && len(t.Refs()) > 0 {
		return v.Reveal()
	}
	return text
}

// keep stores secrets. To a secret that ends with a line end it adds another one, because
// reading removes one.
func (k *hiding) keep(all []onboard.Secret) error {
	if len(all) == 0 {
		return nil
	}
	if k.dir == "" {
		return k.keepInKeyring(all)
	}
	if err := k.open(); err != nil {
		return err
	}
	for _, one := range all {
		path := strings.TrimSuffix(strings.TrimPrefix(one.Ref, "${file:"), "}")
		value := one.Value.Reveal()
		if strings.HasSuffix(value, "\n") || strings.HasSuffix(value, "\r") {
			value += "\n"
		}
		if err := durable.ReplaceAt(path, []byte(value)); err != nil {
			return fmt.Errorf("keeping a secret of %s: %w", one.Server, err)
		}
	}
	return nil
}

// open creates the directory and the state directory above it, or checks that they are private.
func (k *hiding) open() error {
	for _, dir := range []string{filepath.Dir(k.dir), k.dir} {
		d, err := peer.PrivateDir(dir)
		if err != nil {
			return fmt.Errorf("keeping secrets: %w", err)
		}
		if err := d.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (k *hiding) keepInKeyring(all []onboard.Secret) error {
	for _, one := range all {
		name := strings.TrimSuffix(strings.TrimPrefix(one.Ref, "${keyring:"+keyringService+"/"), "}")
		if err := secret.StoreKeyring(lookup, keyringService, name, one.Value); err != nil {
			return fail(exitFailed, "%w; nothing was written; --secrets file works without a keyring", err)
		}
	}
	return nil
}
