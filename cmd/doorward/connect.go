package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/doorward/doorward/client"
)

// connect carries a stdio client's conversation to the daemon.
func connect(ctx context.Context, args []string) error {
	o := newOptions("connect")
	verbose := o.set.Bool("verbose", false, "say on stderr what happens")
	rest, err := o.parse(args)
	if err != nil {
		return err
	}
	if len(rest) > 1 {
		return errUsage
	}
	server := ""
	if len(rest) == 1 {
		server = rest[0]
	}
	c, err := o.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	level := slog.LevelWarn
	if *verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	// A signal must end a read that never returns: the client holds stdin.
	stop := context.AfterFunc(ctx, func() { os.Stdin.Close() })
	defer stop()
	return client.Connect(ctx, c, client.ConnectOptions{Server: server, In: os.Stdin, Out: os.Stdout, Log: log})
}
