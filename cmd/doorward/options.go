package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/child"
	"github.com/doorward/doorward/internal/config"
	"github.com/doorward/doorward/internal/egress"
	"github.com/doorward/doorward/internal/secret"
)

// options are the flags that several commands share.
type options struct {
	set     *flag.FlagSet
	config  string
	state   string
	runtime string
	json    bool
}

// newOptions makes the flags of one command.
func newOptions(name string) *options {
	o := &options{set: flag.NewFlagSet(name, flag.ContinueOnError)}
	o.set.SetOutput(io.Discard)
	o.set.StringVar(&o.config, "config", "", "configuration file")
	o.set.StringVar(&o.state, "state-dir", "", "state directory")
	o.set.StringVar(&o.runtime, "runtime-dir", "", "runtime directory")
	o.set.BoolVar(&o.json, "json", false, "print JSON")
	return o
}

// parse reads the flags; they may stand before and after the arguments.
func (o *options) parse(args []string) ([]string, error) {
	var rest []string
	for {
		if err := o.set.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, errUsage
			}
			return nil, fmt.Errorf("%w: %w", errUsage, err)
		}
		args = o.set.Args()
		if len(args) == 0 {
			return rest, nil
		}
		rest = append(rest, args[0])
		args = args[1:]
	}
}

func lookup(name string) (string, bool) { return os.LookupEnv(name) }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (o *options) configFile() string { return config.FindConfig(o.config, lookup, exists) }

func (o *options) stateDir() (string, error) { return config.FindState(o.state, lookup) }

func (o *options) runtimeDir() (string, error) { return config.FindRuntime(o.runtime, o.state, lookup) }

// load reads the configuration with the checks that the daemon makes.
func (o *options) load() (*config.Config, []config.Problem) {
	file := o.configFile()
	c, problems := config.Load(file, config.Options{Env: lookup, CheckURL: checkURL, ResolveCommand: child.Resolve})
	if c != nil {
		problems = append(problems, unserved(file, c)...)
	}
	if config.Fatal(problems) {
		c = nil
	}
	return c, problems
}

func checkURL(raw string, allowPrivate bool) error {
	u, err := egress.CheckURL(raw)
	if err != nil {
		return err
	}
	return egress.CheckLiteral(u, allowPrivate)
}

// socket is where the daemon listens: the configured path, else the one in
// the runtime directory.
func (o *options) socket() (string, error) {
	if path := os.Getenv("DOORWARD_SOCKET"); path != "" && o.runtime == "" && o.config == "" {
		return path, nil // as a started agent is told
	}
	dir, err := o.runtimeDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "doorward.sock")
	if c, _ := o.load(); c != nil && c.Listen.Unix != "auto" && c.Listen.Unix != "off" {
		path = c.Listen.Unix
	}
	return path, nil
}

// guide lets a client bear a token of instruction delivery.
func (o *options) guide(c *client.Client, g client.GuideOptions) {
	g.Env = lookup
	g.RuntimeDir, _ = o.sessionDir() // without one there are no session files
	c.Guide(g)
}

// dial makes a client for the daemon.
func (o *options) dial() (*client.Client, error) {
	path, err := o.socket()
	if err != nil {
		return nil, err
	}
	c := client.New(path, version)
	if file := os.Getenv("DOORWARD_TOKEN_FILE"); file != "" {
		token, err := secret.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("DOORWARD_TOKEN_FILE: %w", err)
		}
		c.Authorize(token.Reveal())
	}
	return c, nil
}
