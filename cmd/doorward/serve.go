package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// newServe returns the command that runs the daemon until a signal ends it.
func newServe() *cobra.Command {
	o := newInvocation()
	o.takesHere, o.pins = true, newPins()
	tokenFile := o.set.String("token-file", "", "file with a bearer token for TCP listeners")
	dev := o.set.Bool("dev", false, "include details of failures in the answers to callers")
	return o.command("serve [--config F] [--token-file F] [--dev]", "run the daemon", "doorward serve --config doorward.yaml", 0, 0,
		func(ctx context.Context, _ []string) error { return serve(ctx, o.options, *tokenFile, *dev) })
}

func serve(ctx context.Context, o *options, tokenFile string, dev bool) error {
	if runtime.GOOS == "windows" {
		return fail(exitFailed, "serve is not supported on Windows: run the daemon on Linux or macOS, for instance in WSL")
	}
	if err := peer.ProtectSelf(); err != nil { // before any secret is read
		return err
	}
	if o.noTokenFile() {
		return errNoTokenFile
	}
	surviveBrokenPipes()
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP) // before the start, which it would end
	defer signal.Stop(hup)
	d, files, err := newDaemon(o, tokenFile, dev)
	if err != nil {
		return err
	}
	defer d.Close()
	go watchConfig(ctx, o, d, hup, files, stampsOf(files))
	err = d.Run(ctx)
	if errors.Is(err, daemon.ErrNoListener) {
		return fail(exitFailed, "no listener is open: the lines above give the reasons")
	}
	return err
}

// surviveBrokenPipes turns a write to a closed standard output or standard error into an
// error: by default it ends a Go program at once, without its clean-up. The signal is
// received and not ignored, because children inherit an ignored signal.
func surviveBrokenPipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// newDaemon loads the configuration and makes the daemon. It also returns the files that
// were read, to watch them.
func newDaemon(o *options, tokenFile string, dev bool) (*daemon.Daemon, []string, error) {
	if err := o.settle(); err != nil {
		return nil, nil, err
	}
	w := o.loadWhole()
	w.problems = append(w.problems, o.pins.start()...)
	c := w.config
	sayProblems(append(w.problems, w.triedForServing()...))
	if c == nil {
		return nil, nil, fail(exitFailed, "nothing was started: problems in the configuration: %d", len(w.problems))
	}
	state, err := o.stateDir()
	if err != nil {
		return nil, nil, err
	}
	runtime, err := o.runtimeDir()
	if err != nil {
		return nil, nil, err
	}
	token := secret.New(os.Getenv("DOORWARD_TOKEN"))
	os.Unsetenv("DOORWARD_TOKEN")
	d, err := daemon.New(daemon.Options{Config: c, StateDir: state, RuntimeDir: runtime, Token: token,
		TokenFile: tokenFile, Dev: dev, Version: version, Log: newLog(c.Log), Say: stderr()})
	return d, w.files, err
}

// settle fixes the configuration file for the life of the daemon: a file that later appears
// in a place of higher precedence is ignored.
func (o *options) settle() error {
	found := o.find()
	if found.Path != "" {
		abs, err := filepath.Abs(found.Path)
		if err != nil {
			return fmt.Errorf("finding the configuration: %w", err)
		}
		found.Path = abs
	}
	o.found = &found
	return nil
}

// newLog returns the logger of the daemon, which writes to stderr.
func newLog(c config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo
	}
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(logOutput(), o))
	}
	return slog.New(slog.NewTextHandler(logOutput(), o))
}

// lookEvery is the time between two checks of the files for a change.
const lookEvery = 2 * time.Second

// watchConfig reloads the configuration on a signal of hup and when its file, the policy
// file or the tests of the policy change. A reload that fails changes nothing,
// and prints the reason. seen holds the stamps of the files when they were read.
func watchConfig(ctx context.Context, o *options, d *daemon.Daemon, hup <-chan os.Signal, files []string, seen []stamp) {
	tick := time.Tick(lookEvery)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		case <-tick:
			if slices.Equal(stampsOf(files), seen) {
				continue
			}
		}
		seen = stampsOf(files)
		if now := reload(o, d); !slices.Equal(now, files) {
			files = now
			seen = stampsOf(files)
		}
	}
}

// reload reloads the configuration and returns the files that it read, which are watched
// from then on.
func reload(o *options, d *daemon.Daemon) []string {
	if o.found.Path == "" {
		const late = "there was no configuration when the daemon started: a new one is read at the next start"
		fmt.Fprintln(stderr(), "doorward: error:", late)
		daemon.NotReloaded(d, late)
		return []string{""}
	}
	w := o.loadWhole()
	sayProblems(append(w.problems, w.triedForServing()...))
	if w.config == nil {
		fmt.Fprintln(stderr(), "doorward: error: the configuration was not reloaded: the running one remains in force")
		daemon.NotReloaded(d, firstProblem(w.problems))
		return w.files
	}
	if err := d.Reload(w.config); err != nil {
		fmt.Fprintln(stderr(), "doorward: error:", err)
	}
	return w.files
}

// firstProblem returns the first problem that is not a warning; empty: none.
func firstProblem(all []config.Problem) string {
	for _, p := range all {
		if !p.Warning {
			return p.String()
		}
	}
	return ""
}

// stamp identifies a state of a file; the zero stamp means that there is none.
type stamp struct {
	size    int64
	changed time.Time
}

func stampsOf(paths []string) []stamp {
	var out []stamp
	for _, path := range paths {
		out = append(out, stampOf(path))
	}
	return out
}

func stampOf(path string) stamp {
	fi, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{fi.Size(), fi.ModTime()}
}
