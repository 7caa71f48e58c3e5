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
	"syscall"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// newServe returns the command that runs the daemon until a signal ends it.
func newServe() *cobra.Command {
	o := newInvocation()
	withoutJSON(o.options)
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
	r, err := newDaemon(o, tokenFile, dev)
	if err != nil {
		return err
	}
	defer r.d.Close()
	go r.watch(ctx, hup, o.pins.stamps(r.files))
	err = r.d.Run(ctx)
	if errors.Is(err, daemon.ErrNoListener) {
		return fail(exitFailed, "no listener is open: the lines above give the reasons")
	}
	return err
}

// surviveBrokenPipes turns a write to a closed standard output or standard error into an
// error: by default it ends a Go program at once, without its clean-up. The signal is
// received and not ignored, because children inherit an ignored signal.
func surviveBrokenPipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// newDaemon loads the configuration and makes the daemon, with what its reloads need.
func newDaemon(o *options, tokenFile string, dev bool) (*reloader, error) {
	if err := o.settle(); err != nil {
		return nil, err
	}
	w := o.loadWhole()
	w.problems = append(w.problems, o.pins.start()...)
	c := w.config
	var tell teller
	if w.read != nil {
		tell = newTeller(w.read.Log)
	}
	tell.problems(append(w.problems, w.triedForServing()...))
	if c == nil {
		return nil, fail(exitFailed, "nothing was started: problems in the configuration: %d", len(w.problems))
	}
	state, err := o.stateDir()
	if err != nil {
		return nil, err
	}
	runtime, err := o.runtimeDir()
	if err != nil {
		return nil, err
	}
	token := secret.New(os.Getenv("DOORWARD_TOKEN"))
	os.Unsetenv("DOORWARD_TOKEN")
	d, err := daemon.New(daemon.Options{Config: c, StateDir: state, RuntimeDir: runtime, Token: token,
		TokenFile: tokenFile, Dev: dev, Version: version, Log: tell.log, Say: stderr()})
	return &reloader{o: o, d: d, files: w.files, tell: tell}, err
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
