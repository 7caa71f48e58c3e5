package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/doorward/doorward/client"
)

// connect carries a stdio client's conversation to the daemon.
func connect(ctx context.Context, args []string) error {
	o := newOptions("connect")
	verbose := o.set.Bool("verbose", false, "say on stderr what happens")
	namespace := o.set.String("namespace", "", "label of the project, for messaging")
	channel := o.set.Bool("channel", false, "tell the client of new mail as a Claude Code channel")
	payload := o.set.String("channel-payload", string(client.ChannelPointer), "pointer or full")
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
	mode, err := channelOf(*channel, client.Channel(*payload))
	if err != nil {
		return err
	}
	label, err := namespaceOf(*namespace)
	if err != nil {
		return err
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
	log := slog.New(slog.NewTextHandler(stderr(), &slog.HandlerOptions{Level: level}))
	greeted := server == "" || server == "instructions"
	o.guide(c, client.GuideOptions{Ask: true, Behind: !greeted, Project: label, Log: log})
	// A signal must end a read that never returns: the client holds stdin.
	stop := context.AfterFunc(ctx, func() { os.Stdin.Close() })
	defer stop()
	return client.Connect(ctx, c, client.ConnectOptions{Server: server, In: os.Stdin, Out: exactly(), Log: log,
		Namespace: label, Channel: mode})
}

func channelOf(on bool, payload client.Channel) (client.Channel, error) {
	if payload != client.ChannelPointer && payload != client.ChannelFull {
		return "", fmt.Errorf("%w: --channel-payload is pointer or full", errUsage)
	}
	if !on {
		return client.ChannelOff, nil
	}
	return payload, nil
}

// namespaceOf is the label that was given, or that of the working directory,
// which clients start their commands in. A directory that is gone has none.
func namespaceOf(given string) (string, error) {
	if given == "" {
		label, err := client.Namespace(".")
		if err != nil {
			return "", nil
		}
		return label, nil
	}
	if !client.ValidNamespace(given) {
		return "", fmt.Errorf("%w: --namespace has up to 63 lower-case letters, digits, dots, underscores and hyphens, the first a letter or digit", errUsage)
	}
	return given, nil
}
