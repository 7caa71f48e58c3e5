package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/daemon/desktop"
)

// newUI returns the command that signs a browser in to the console, or signs all browsers out.
func newUI() *cobra.Command {
	o := newInvocation()
	only := o.set.Bool("print", false, "print the address and open no browser")
	out := o.set.Bool("sign-out", false, "end all sessions of the console")
	return o.command("ui [--print | --sign-out] [--json]", "open the web console", "doorward ui", 0, 0,
		func(ctx context.Context, _ []string) error {
			switch {
			case *out && *only:
				return errUsage
			case *out:
				return signOutUI(ctx, o)
			}
			return openUI(ctx, o, *only)
		})
}

func openUI(ctx context.Context, o *invocation, only bool) error {
	var opened admin.UIOpened
	if err := o.daemon.tell(ctx, "/admin/v1/ui", struct{}{}, &opened); err != nil {
		return uiFailure(err)
	}
	if !only && !o.json && desktop.OpenBrowser(opened.URL) == nil {
		fmt.Fprintln(stderr(), "doorward: the console opens in your browser")
		return nil
	}
	if !o.json {
		fmt.Fprintln(stderr(), "doorward: open this address in a browser on this machine; it works once, within a minute:")
	}
	return o.printUnbroken(opened, opened.URL+"\n")
}

func signOutUI(ctx context.Context, o *invocation) error {
	var done admin.UISignedOut
	if err := o.daemon.tell(ctx, "/admin/v1/ui/sign-out", struct{}{}, &done); err != nil {
		return uiFailure(err)
	}
	return o.print(done, fmt.Sprintf("sessions ended: %d\n", done.Ended))
}

func uiFailure(err error) error {
	var e *client.AdminError
	switch {
	case !errors.As(err, &e):
		return err
	case e.Code == "AGENT_SHELL":
		return shellFailure(e.Why)
	case e.Code == "NO_CONSOLE":
		return fail(exitFailed, "no loopback listener is open, and the console is served only on loopback: add 127.0.0.1:7866 to listen.http")
	case e.Status == http.StatusForbidden:
		return fail(exitRefused, "refused: the console is opened by the daemon's own user on its Unix socket (audit record %d)", e.Ref)
	}
	return unexplained(e)
}
