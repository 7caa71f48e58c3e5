package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/upstream/egress"
	"github.com/doorward/doorward/internal/upstream/process"
)

// version is set by the release build.
var version = "0.1.0-dev"

// options are the flags that several commands share.
type options struct {
	set     *pflag.FlagSet
	config  string
	state   string
	runtime string
	json    bool
	verbose bool // -v of commands that shorten their output

	takesHere bool          // ./doorward.yaml is found even if it was not allowed
	unvetted  bool          // and is read even if it was not allowed
	found     *config.Found // the configuration that settle has chosen, in a daemon
	pins      *pins         // in a daemon; otherwise nil
	workdir   string        // real path of ./doorward.yaml, once it is known
	noted     bool          // it was printed that ./doorward.yaml is not used
	said      bool          // the problems of the configuration were printed
}

// newOptions returns the options of one command, with their flags.
func newOptions() *options {
	o := &options{set: pflag.NewFlagSet("", pflag.ContinueOnError)}
	o.set.StringVar(&o.config, "config", "", "configuration file")
	o.set.StringVar(&o.state, "state-dir", "", "state directory")
	o.set.StringVar(&o.runtime, "runtime-dir", "", "runtime directory")
	o.set.BoolVar(&o.json, "json", false, "print JSON")
	return o
}

// withoutJSON removes --json from a command that prints no data, so that it is refused as wrong
// usage instead of ignored.
func withoutJSON(o *options) {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.set.VisitAll(func(f *pflag.Flag) {
		if f.Name != "json" {
			set.AddFlag(f)
		}
	})
	o.set = set
}

// noTokenFile reports whether --token-file was given an empty name, as by an unset
// variable in a script. Listeners must not be left without a token because of that.
func (o *options) noTokenFile() bool {
	f := o.set.Lookup("token-file")
	return f.Changed && f.Value.String() == ""
}

func lookup(name string) (string, bool) { return os.LookupEnv(name) }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// find returns the configuration of the command.
func (o *options) find() config.Found {
	if o.found != nil {
		return *o.found
	}
	return config.FindConfig(o.config, lookup, o.here, exists)
}

func (o *options) configFile() string { return o.find().Path }

func (o *options) stateDir() (string, error) { return config.FindState(o.state, lookup) }

func (o *options) runtimeDir() (string, error) { return config.FindRuntime(o.runtime, o.state, lookup) }

// load reads the configuration with the checks of the daemon. The configuration is nil if
// a problem is fatal.
func (o *options) load() (*config.Config, []config.Problem) { return o.loadFrom(o.find()) }

func (o *options) loadFrom(found config.Found) (*config.Config, []config.Problem) {
	file, with := found.Path, config.Options{Env: lookup, CheckURL: checkURL, ResolveCommand: process.Resolve}
	if found.Here && !o.unvetted {
		with.Vet = vetting{o}.vet
	}
	if o.pins != nil {
		with.Open, with.File = o.pins.open, o.pins.secret
	}
	c, problems := config.Load(file, with)
	if c != nil {
		problems = append(problems, unserved(file, c)...)
	}
	if config.Fatal(problems) {
		c = nil
	}
	return c, problems
}

// configured is load for a command that does nothing without the configuration. It prints the
// problems if one is fatal.
func configured(o *options) (*config.Config, error) {
	c, problems := o.load()
	if c == nil {
		sayOnce(o, problems)
		return nil, fail(exitFailed, "the configuration has problems: correct them, or name another file with --config")
	}
	return c, nil
}

// sayOnce prints the problems of the configuration of a command, once.
func sayOnce(o *options, problems []config.Problem) {
	if !o.said {
		o.said = true
		sayProblems(problems)
	}
}

func checkURL(raw string, allowPrivate bool) error {
	u, err := egress.CheckURL(raw)
	if err != nil {
		return err
	}
	err = egress.CheckLiteral(u, allowPrivate)
	switch {
	case err == nil:
		return nil
	case !allowPrivate && egress.CheckLiteral(u, true) == nil:
		return fmt.Errorf("%w; allow_private: true allows it", err)
	}
	return fmt.Errorf("%w; write another address", err)
}

// socket returns the path of the daemon's socket: the configured path, otherwise the
// one in the runtime directory. The configuration of the working directory is
// ignored, because it could lead a command to another user's daemon.
func (o *options) socket() (string, error) {
	if path := os.Getenv("DOORWARD_SOCKET"); path != "" && o.runtime == "" && o.config == "" {
		return path, nil // set for an agent that the daemon started
	}
	dir, err := o.runtimeDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "doorward.sock")
	if o.runtime == "" && os.Getenv("DOORWARD_RUNTIME_DIR") == "" {
		path = sessionSocket(userRuntime, path, lookup)
	}
	nowhere := func() bool { return false }
	found := config.FindConfig(o.config, lookup, nowhere, exists)
	if unix := config.Socket(found.Path, lookup); unix != "auto" && unix != "off" {
		path = unix
	}
	return path, nil
}

// guide makes a client send the token of a delivery session.
func (o *options) guide(c *client.Client, g client.GuideOptions) {
	g.Env = lookup
	g.RuntimeDir, _ = o.sessionDir() // after an error no session files are used
	c.Guide(g)
}

// dial returns a client for the daemon. It does not connect yet.
func (o *options) dial() (*client.Client, error) {
	path, err := o.socket()
	if err != nil {
		return nil, err
	}
	c := client.New(path, version)
	key, err := o.daemonKey()
	if err != nil {
		return nil, err
	}
	if key != nil {
		c.Expect(key)
	}
	if file := os.Getenv("DOORWARD_TOKEN_FILE"); file != "" {
		token, err := secret.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("DOORWARD_TOKEN_FILE: %w", err)
		}
		c.Authorize(token.Reveal())
	}
	return c, nil
}

// sessionDir returns the directory of session files: the runtime directory. A contained
// agent that the daemon started cannot write there; it uses a directory of its own in the
// directory for temporary files.
func (o *options) sessionDir() (string, error) {
	dir, err := o.runtimeDir()
	if token := os.Getenv("DOORWARD_TOKEN_FILE"); err == nil && token != "" && isReadOnly(dir) {
		dir = filepath.Join(os.TempDir(), "doorward-"+filepath.Base(token))
	}
	return dir, err
}
