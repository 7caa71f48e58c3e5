package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/doorward/doorward/internal/config"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/secret"
)

// serve runs the daemon until a signal ends it.
func serve(ctx context.Context, args []string) error {
	o := newOptions("serve")
	tokenFile := o.set.String("token-file", "", "file with a bearer token for TCP listeners")
	dev := o.set.Bool("dev", false, "tell callers the detail of failures")
	rest, err := o.parse(args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return errUsage
	}
	d, err := newDaemon(o, *tokenFile, *dev)
	if err != nil {
		return err
	}
	defer d.Close()
	go watchConfig(ctx, o, d)
	err = d.Run(ctx)
	if errors.Is(err, daemon.ErrNoListener) {
		return fail(exitFailed, "no listener is left: see the lines above for each one's reason")
	}
	return err
}

func newDaemon(o *options, tokenFile string, dev bool) (*daemon.Daemon, error) {
	c, problems := o.load()
	for _, p := range problems {
		fmt.Fprintln(os.Stderr, p)
	}
	if c == nil {
		return nil, fail(exitFailed, "the configuration has %d problems: nothing was started", len(problems))
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
	return daemon.New(daemon.Options{Config: c, StateDir: state, RuntimeDir: runtime, Token: token,
		TokenFile: tokenFile, Dev: dev, Version: version, Log: newLog(c.Log), Say: os.Stderr})
}

// newLog writes the daemon's own log to stderr.
func newLog(c config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo
	}
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, o))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, o))
}

// lookEvery is how often the configuration file is looked at for a change.
const lookEvery = 2 * time.Second

// watchConfig reloads the configuration on SIGHUP and when its file changes. A
// reload that fails changes nothing, and says why.
func watchConfig(ctx context.Context, o *options, d *daemon.Daemon) {
	path := o.configFile()
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for seen := stampOf(path); ; {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		case <-tick.C:
			if stampOf(path) == seen {
				continue
			}
		}
		seen = stampOf(path)
		reload(o, d)
	}
}

func reload(o *options, d *daemon.Daemon) {
	c, problems := o.load()
	for _, p := range problems {
		fmt.Fprintln(os.Stderr, p)
	}
	if c == nil {
		fmt.Fprintln(os.Stderr, "doorward: error: the configuration was not reloaded: the running one stays")
		return
	}
	if err := d.Reload(c); err != nil {
		fmt.Fprintln(os.Stderr, "doorward: error:", err)
	}
}

// stamp tells one state of a file from another.
type stamp struct {
	size    int64
	changed time.Time
}

func stampOf(path string) stamp {
	fi, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{fi.Size(), fi.ModTime()}
}
