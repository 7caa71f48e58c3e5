package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/messaging/agent"
)

// newRestart returns the command that ends the processes of a server, which start again at
// the next call.
func newRestart() *cobra.Command {
	o := newInvocation()
	return o.command("restart SERVER [--json]", "end the processes of a server", "doorward restart notes", 1, 1,
		func(ctx context.Context, args []string) error {
			var done admin.ServerRestarted
			if err := o.daemon.tell(ctx, "/admin/v1/servers/restart", admin.ServerRestart{Server: args[0]}, &done); err != nil {
				return controlFailure(err, noServer(args[0]))
			}
			return o.print(done, fmt.Sprintf("ended %d; %s starts again at the next call\n", done.Ended, oneWord(args[0])))
		})
}

// noServer says why a command finds no server of a name that has processes or definitions.
func noServer(name string) string {
	if name == agent.ServerName || name == deliver.ServerName {
		return name + " is built in and has no process of its own"
	}
	return "there is no server " + name + "; doorward status lists all"
}

// newStop returns the command that ends an agent that Doorward started.
func newStop() *cobra.Command {
	o := newInvocation()
	return o.command("stop SPAWN-ID [--json]", "end an agent that was started by another", "doorward agent stop 01JC000000000000000000000A", 1, 1,
		func(ctx context.Context, args []string) error {
			var done admin.AgentStop
			if err := o.daemon.tell(ctx, pathAgent+"stop", admin.AgentStop{Spawn: args[0]}, &done); err != nil {
				return controlFailure(err, "no running agent has the spawn id "+args[0])
			}
			return o.print(done, fmt.Sprintf("%s is being ended\n", oneWord(done.Spawn)))
		})
}

// controlFailure turns a failure into an error that explains it; missing is the text for
// status 404.
func controlFailure(err error, missing string) error {
	var e *client.AdminError
	switch {
	case !errors.As(err, &e):
		return err
	case e.Code == "AGENT_SHELL":
		return shellFailure(e.Why)
	case e.Status == http.StatusNotFound:
		return fail(exitFailed, "%s", missing)
	case e.Status == http.StatusForbidden:
		return fail(exitRefused, "refused: this is for administrators")
	}
	return unexplained(e)
}
