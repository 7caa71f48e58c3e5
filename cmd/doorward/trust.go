package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// newTrust returns the command that shows the withheld definitions of a server, or of all,
// and approves them as they were shown.
func newTrust() *cobra.Command {
	o := newInvocation()
	yes := o.set.Bool("yes", false, "approve without asking")
	return o.command("trust [SERVER] [--yes] [--json]", "show and approve what a server offers", "doorward trust notes", 0, 1,
		func(ctx context.Context, args []string) error {
			t := &truster{o: o, yes: *yes, in: bufio.NewReader(os.Stdin), out: trusted{Servers: []admin.Trust{}, Approved: []string{}}}
			err := t.run(ctx, strings.Join(args, ""))
			if o.json && (err == nil || isRefused(err)) {
				err = errors.Join(printJSON(t.out), err)
			}
			return err
		})
}

// trusted is what `trust --json` prints.
type trusted struct {
	Servers  []admin.Trust `json:"servers"`
	Approved []string      `json:"approved"` // SERVER/ITEM
}

// truster is one run of `trust`.
type truster struct {
	o   *invocation
	yes bool
	in  *bufio.Reader
	out trusted
}

func (t *truster) run(ctx context.Context, server string) error {
	if server != "" {
		return t.one(ctx, server)
	}
	var all admin.TrustList
	if err := t.o.daemon.ask(ctx, "/admin/v1/trust", &all); err != nil {
		return trustFailure("", err)
	}
	var refused error
	for _, s := range all.Servers {
		err := t.settle(ctx, s)
		if isRefused(err) {
			refused = err
		} else if err != nil {
			return err
		}
	}
	if len(all.Servers) == 0 {
		t.say("nothing is withheld")
	}
	return refused
}

// one makes the daemon list a server's definitions again, and then settles them.
func (t *truster) one(ctx context.Context, server string) error {
	var s admin.Trust
	if err := t.o.daemon.tell(ctx, "/admin/v1/trust/look", admin.TrustLook{Server: server}, &s); err != nil {
		return trustFailure(server, err)
	}
	if s.Unreached {
		fmt.Fprintf(stderr(), "doorward: %s did not list what it offers: these are its last known definitions\n", server)
	}
	return t.settle(ctx, s)
}

// settle shows and approves the withheld definitions of a server. If its command was
// approved, the server can be started and may have more definitions, which are settled too.
func (t *truster) settle(ctx context.Context, s admin.Trust) error {
	t.out.Servers = append(t.out.Servers, s)
	if len(s.Withheld) == 0 {
		t.say(s.Server + ": nothing is withheld")
		return nil
	}
	if !t.o.json {
		if _, err := fmt.Fprint(people(), withheldText(s)); err != nil {
			return fmt.Errorf("showing what %s offers: %w", s.Server, err)
		}
	}
	items := approvable(s)
	if len(items) == 0 {
		return fail(exitRefused, "%s: the withheld definitions cannot be approved", s.Server)
	}
	if err := t.agreed(s.Server, len(items)); err != nil {
		return err
	}
	var done struct{ Approved int }
	if err := t.o.daemon.tell(ctx, "/admin/v1/trust", admin.TrustApproval{Server: s.Server, Items: items}, &done); err != nil {
		return trustFailure(s.Server, err)
	}
	started := false
	for _, i := range items {
		t.out.Approved = append(t.out.Approved, s.Server+"/"+i.Item)
		started = started || i.Item == "command"
	}
	t.say(fmt.Sprintf("%s: %d approved", s.Server, done.Approved))
	if started {
		return t.one(ctx, s.Server)
	}
	return nil
}

// approvable returns the items that were shown and can be approved.
func approvable(s admin.Trust) []pin.Approval {
	var items []pin.Approval
	for _, w := range s.Withheld {
		if w.Reason != pin.Refused {
			items = append(items, pin.Approval{Item: w.Item, Digest: w.Digest})
		}
	}
	return items
}

// agreed asks for consent at the terminal, if there is one; nil: it is given.
func (t *truster) agreed(server string, n int) error {
	if t.yes {
		return nil
	}
	yes, asked := false, false
	if !t.o.json {
		yes, asked = confirm(t.in, fmt.Sprintf("approve %d of %s?", n, server))
	}
	switch {
	case yes:
		return nil
	case !asked:
		return fail(exitRefused, "%s: not approved: check the output above and use --yes, or run this from a terminal", server)
	}
	return fail(exitRefused, "%s: not approved", server)
}

func (t *truster) say(text string) {
	if !t.o.json {
		fmt.Fprintln(stderr(), "doorward:", text)
	}
}

func isRefused(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.status == exitRefused
}

func trustFailure(server string, err error) error {
	var shell *client.AdminError
	if errors.As(err, &shell) && shell.Code == "AGENT_SHELL" {
		return shellFailure(shell.Why)
	}
	var status client.ErrStatus
	if !errors.As(err, &status) {
		return err
	}
	switch int(status) {
	case http.StatusNotFound:
		return fail(exitFailed, "%s", noServer(server))
	case http.StatusConflict:
		return fail(exitFailed, "%s has changed since this was shown: nothing was approved; run the command again", server)
	case http.StatusForbidden:
		return fail(exitRefused, "only administrators can approve: %w", err)
	}
	return err
}

// withheldText returns the text about the withheld definitions of a server.
func withheldText(s admin.Trust) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d withheld\n", s.Server, len(s.Withheld))
	if s.Edited != nil {
		b.WriteString("\n  the configuration changed its arguments, which needs no approval\n")
		differing(&b, s.Edited.Change())
	}
	for _, w := range s.Withheld {
		fmt.Fprintf(&b, "\n  %s %s", w.Reason, itemName(w.Item))
		if w.Detail != "" {
			fmt.Fprintf(&b, ": %s", plaintext.Line(w.Detail))
		}
		b.WriteString("\n")
		for _, c := range w.Changes() {
			differing(&b, c)
		}
	}
	return b.String()
}

// differing writes one difference. The texts of c are quoted, with invisible characters escaped.
func differing(b *strings.Builder, c pin.Change) {
	path := c.Path
	if path == "" {
		path = "text"
	}
	if c.Before != "" {
		fmt.Fprintf(b, "    - %s: %s\n", path, c.Before)
	}
	if c.After != "" {
		fmt.Fprintf(b, "    + %s: %s\n", path, c.After)
	}
}

// itemName returns an item's kind and its name, escaped if it has characters outside of ASCII.
func itemName(item string) string {
	kind, name, ok := strings.Cut(item, ":")
	if !ok {
		return item
	}
	if q := strconv.QuoteToASCII(name); q != `"`+name+`"` { // also escapes letters that look alike
		name = q
	}
	return kind + " " + name
}
