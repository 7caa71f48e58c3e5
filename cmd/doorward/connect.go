package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/client"
)

// newConnect returns the command that carries a stdio client's conversation to the daemon.
func newConnect() *cobra.Command {
	o := newInvocation()
	withoutJSON(o.options)
	verbose := o.set.Bool("verbose", false, "log to stderr")
	namespace := o.set.String("namespace", "", "project label, for messaging")
	channel := o.set.Bool("channel", false, "tell the client of new mail as a Claude Code channel")
	payload := o.set.String("channel-payload", string(client.ChannelPointer), "pointer or full")
	return o.command("connect [SERVER] [--namespace NAME] [--channel]", "relay stdio to the daemon, for clients that start a command",
		"doorward connect notes", 0, 1,
		func(ctx context.Context, args []string) error {
			mode, err := channelOf(*channel, client.Channel(*payload))
			if err != nil {
				return err
			}
			label, err := namespaceOf(*namespace)
			if err != nil {
				return err
			}
			return relayStdio(ctx, o, client.ConnectOptions{Server: strings.Join(args, ""), Namespace: label, Channel: mode}, *verbose)
		})
}

// relayStdio copies messages between stdio and the daemon.
func relayStdio(ctx context.Context, o *invocation, with client.ConnectOptions, verbose bool) error {
	c, err := o.daemon.connect()
	if err != nil {
		return err
	}
	surviveBrokenPipes()
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(logOutput(), &slog.HandlerOptions{Level: level}))
	greeted := with.Server == "" || with.Server == "instructions"
	o.guide(c, client.GuideOptions{Ask: true, Behind: !greeted, Project: with.Namespace, Log: log})
	// A signal must end a read of stdin, which the client keeps open.
	stop := context.AfterFunc(ctx, func() { os.Stdin.Close() })
	defer stop()
	with.In, with.Out, with.Log = os.Stdin, exactly(), log
	return client.Connect(ctx, c, with)
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

// namespaceOf returns the given label, or that of the working directory, in which clients
// start their commands. It returns "" if the directory no longer exists.
func namespaceOf(given string) (string, error) {
	if given == "" {
		label, err := client.Namespace(".")
		if err != nil {
			return "", nil
		}
		return label, nil
	}
	if !client.ValidNamespace(given) {
		return "", fmt.Errorf("%w: --namespace must have up to 63 lower-case letters, digits, dots, underscores and hyphens, the first a letter or digit", errUsage)
	}
	return given, nil
}
