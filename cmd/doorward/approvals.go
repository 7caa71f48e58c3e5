package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/policy"
)

// pathApprovals is the resource of the held calls in the local API.
const pathApprovals = "/admin/v1/approvals"

// newPending returns the command that shows the calls held for the operator.
func newPending() *cobra.Command {
	o := newInvocation()
	follow := o.set.Bool("follow", false, "wait for held calls and decide each at this terminal")
	return o.command("pending [--follow] [--json]", "show the calls held for approval", "doorward pending", 0, 0,
		func(ctx context.Context, _ []string) error {
			if *follow {
				return followPending(ctx, o)
			}
			var all []admin.PendingCall
			if err := o.daemon.ask(ctx, pathApprovals, &all); err != nil {
				return approvalFailure(err)
			}
			return o.print(all, pendingText(all))
		})
}

func pendingText(all []admin.PendingCall) string {
	var b strings.Builder
	for _, c := range all {
		b.WriteString(pendingCall(c))
	}
	if len(all) == 0 {
		return "nothing waits\n"
	}
	return b.String()
}

// pendingCall returns the text about one call. Text of a server or an agent is escaped.
func pendingCall(c admin.PendingCall) string {
	var b strings.Builder
	name := plaintext.Word(c.Tool)
	if c.Action != "tools/call" {
		name = plaintext.Line(c.Action) + " " + name
	}
	fmt.Fprintf(&b, "%d  %s/%s  %s\n", c.N, plaintext.Line(c.Server), name, plaintext.Line(string(c.Args)))
	if len(c.Rest) > 0 {
		fmt.Fprintf(&b, "   with %s\n", plaintext.Line(string(c.Rest)))
	}
	who := c.Principal
	if c.Client != "" {
		who = c.Client + ", " + who
	}
	fmt.Fprintf(&b, "   by %s, until %s\n   held by %s: %s\n", plaintext.Line(who), localTime(c.Expires), plaintext.Line(c.Rule), plaintext.Line(c.Reason))
	for _, n := range c.Notes {
		fmt.Fprintf(&b, "   note: %s\n", plaintext.Line(n))
	}
	return b.String()
}

func localTime(stamp string) string {
	t, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return plaintext.Line(stamp)
	}
	return t.Local().Format("15:04:05")
}

// waitForHeld returns the held calls when they differ from those of before, or when the daemon
// ends the wait. With a nil before it does not wait.
func waitForHeld(ctx context.Context, o *invocation, before []admin.PendingCall) (all []admin.PendingCall, err error) {
	path := pathApprovals
	if before != nil {
		path += "?unlike=" + admin.DigestOfPending(before)
	}
	err = o.daemon.ask(ctx, path, &all)
	return all, err
}

// followPending asks the operator about each held call once. A daemon that has answered once
// may end and start again.
func followPending(ctx context.Context, o *invocation) error {
	seen := map[uint64]bool{}
	keys := keyboard{os.Stdin}
	var all []admin.PendingCall
	met, away := false, false
	for ctx.Err() == nil {
		var err error
		if all, err = waitForHeld(ctx, o, all); err != nil && ctx.Err() == nil {
			if !met || isFinal(err) {
				return approvalFailure(err)
			}
			if !away {
				fmt.Fprintf(stderr(), "doorward: waiting for the daemon: %v\n", err)
			}
			away = true
			betweenRequests(ctx)
			continue
		}
		met, away = true, false
		for _, c := range all {
			if seen[c.N] {
				continue
			}
			seen[c.N] = true
			switch err := askAbout(ctx, o, keys, c); {
			case errors.Is(err, errInterrupted), ctx.Err() != nil:
				return nil
			case errors.Is(err, errElsewhere):
				fmt.Fprintf(stdout(), "   %d was decided elsewhere, or has expired\n", c.N)
			case err != nil && !errors.Is(err, io.EOF): // without input no call can be answered; they are only shown
				fmt.Fprintf(stderr(), "doorward: %v\n", err)
			}
		}
		betweenRequests(ctx)
	}
	return nil
}

// isFinal reports whether a request that fails with err fails again when it is repeated. A daemon
// that ends and starts again causes no such error.
func isFinal(err error) bool {
	_, answered := errors.AsType[*client.AdminError](err)
	_, other := errors.AsType[*json.UnmarshalTypeError](err) // a list that another version made
	return answered || other || errors.Is(err, client.ErrNotOurs) || errors.Is(err, fs.ErrPermission)
}

// errElsewhere ends a question about a call that is no longer held.
var errElsewhere = errors.New("settled elsewhere")

// whileOpen returns a context that ends with errElsewhere when the call is no longer held, and
// with another error when that cannot be known any more.
// end must be called; it stops the goroutine that watches the call.
func whileOpen(ctx context.Context, o *invocation, c admin.PendingCall) (open context.Context, end func()) {
	open, stop := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	is := func(q admin.PendingCall) bool { return q.N == c.N }
	watch.Go(func() {
		var all []admin.PendingCall
		for open.Err() == nil {
			var err error
			switch all, err = waitForHeld(open, o, all); {
			case err != nil && isFinal(err):
				stop(approvalFailure(err))
			case err == nil && !slices.ContainsFunc(all, is):
				stop(errElsewhere)
			}
			betweenRequests(open)
		}
	})
	return open, func() { stop(nil); watch.Wait() }
}

// betweenRequests waits for the time between two requests for the held calls.
func betweenRequests(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
}

// The questions about a call, and about a message, which can only be approved once.
const (
	keysOfAnswers = "   y yes, n no, w no and why, s yes this session, h yes for 1h, others later"
	keysOfMessage = "   y yes, n no, w no and why, others later"
)

// askAbout shows a call, reads the operator's decision and sends it to the daemon.
func askAbout(ctx context.Context, o *invocation, keys keyboard, c admin.PendingCall) error {
	fmt.Fprint(people(), pendingCall(c))
	if c.N == 0 { // it cannot be decided by number
		return nil
	}
	open, end := whileOpen(ctx, o, c)
	s, err := answered(open, keys, c)
	end()
	if err != nil || s.Decision == "" {
		return err
	}
	return settle(ctx, o, c.N, s)
}

// answered reads the operator's decision about a call. Without a Decision the call stays held.
func answered(ctx context.Context, keys keyboard, c admin.PendingCall) (s admin.Settlement, err error) {
	lasting, question := c.Action != policy.AgentDeliver, keysOfAnswers
	if !lasting {
		question = keysOfMessage
	}
	key, err := keys.ask(ctx, question)
	fmt.Fprintln(stdout())
	s = admin.Settlement{Decision: "approve", Preview: c.Preview}
	switch {
	case err != nil:
	case key == 'y':
	case key == 's' && lasting:
		s.For = "session"
	case key == 'h' && lasting:
		s.For = "1h"
	case key == 'n':
		s.Decision = "deny"
	case key == 'w':
		s.Decision = "deny"
		s.Why, err = askWhy(ctx, keys)
	default:
		s.Decision = ""
	}
	return s, err
}

// askWhy reads the reason of a denial, which is shown to the caller.
func askWhy(ctx context.Context, keys keyboard) (string, error) {
	fmt.Fprint(stdout(), "   why: ")
	return keys.line(ctx)
}

func settle(ctx context.Context, o *invocation, n uint64, s admin.Settlement) error {
	err := o.daemon.tell(ctx, pathApprovals+"/"+strconv.FormatUint(n, 10), s, &struct{}{})
	if err != nil {
		return approvalFailure(err)
	}
	return nil
}

// newApprove returns the command that approves a held call.
func newApprove() *cobra.Command {
	o := newInvocation()
	life := o.set.String("for", "once", "once, session, 1h or always: how long the approval covers further calls of the tool")
	return o.command("approve N [--for once|session|1h|always] [--json]", "approve a held call", "doorward approve 7", 1, 1,
		func(ctx context.Context, args []string) error {
			n, err := callNumber(args[0])
			if err != nil {
				return err
			}
			if err := settle(ctx, o, n, admin.Settlement{Decision: "approve", For: *life}); err != nil {
				return errors.Join(err, openDecisions(ctx, o, err))
			}
			return o.print(map[string]uint64{"approved": n}, fmt.Sprintf("approved %d (%s)\n", n, *life))
		})
}

// openDecisions opens the console if why is errPasskey: the approval needs a passkey there.
func openDecisions(ctx context.Context, o *invocation, why error) error {
	if !errors.Is(why, errPasskey) {
		return nil
	}
	return openUI(ctx, o, false)
}

// newDeny returns the command that denies a held call.
func newDeny() *cobra.Command {
	o := newInvocation()
	why := o.set.String("why", "", "reason, shown to the caller")
	return o.command("deny N [--why TEXT] [--json]", "deny a held call", `doorward deny 7 --why "not on a Friday"`, 1, 1,
		func(ctx context.Context, args []string) error {
			n, err := callNumber(args[0])
			if err != nil {
				return err
			}
			if err := settle(ctx, o, n, admin.Settlement{Decision: "deny", Why: *why}); err != nil {
				return err
			}
			return o.print(map[string]uint64{"denied": n}, fmt.Sprintf("denied %d\n", n))
		})
}

func callNumber(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%w: %s is not the number of a held call; see doorward pending", errUsage, plaintext.Quote(text))
	}
	return n, nil
}

// newApprovals returns the commands that show and revoke standing approvals.
func newApprovals() *cobra.Command {
	return group("approvals", "manage standing approvals", newGrantList(), newGrantRevoke(), newPasskeyList())
}

func newGrantList() *cobra.Command {
	o := newInvocation()
	return o.command("list [--json]", "list standing approvals", "doorward approvals list", 0, 0,
		func(ctx context.Context, _ []string) error {
			var all []admin.Grant
			if err := o.daemon.ask(ctx, "/admin/v1/grants", &all); err != nil {
				return approvalFailure(err)
			}
			var b strings.Builder
			for _, g := range all {
				until := ""
				if g.Expires != "" {
					until = ", until " + localTime(g.Expires)
				}
				fmt.Fprintf(&b, "%s  %s  for %s, %s%s\n", oneWord(g.ID), plaintext.Line(g.Server+"/"+g.Tool), plaintext.Line(g.Principal), oneWord(g.For), until)
			}
			if len(all) == 0 {
				b.WriteString("there are no standing approvals\n")
			}
			return o.print(all, b.String())
		})
}

// newPasskeyList returns the command that shows the operator's passkeys. The console adds
// and removes them.
func newPasskeyList() *cobra.Command {
	o := newInvocation()
	return o.command("passkeys [--json]", "show the passkeys that approve calls", "doorward approvals passkeys", 0, 0,
		func(ctx context.Context, _ []string) error {
			var all []admin.Passkey
			if err := o.daemon.ask(ctx, "/admin/v1/passkeys", &all); err != nil {
				return approvalFailure(err)
			}
			var b strings.Builder
			for _, k := range all {
				fmt.Fprintf(&b, "%s  %s  added %s\n", oneWord(k.ID), plaintext.Line(k.Name), oneWord(k.Added))
			}
			if len(all) == 0 {
				b.WriteString("no passkey is registered; add one in the console (doorward ui, Passkeys)\n")
			}
			return o.print(all, b.String())
		})
}

func newGrantRevoke() *cobra.Command {
	o := newInvocation()
	return o.command("revoke ID [--json]", "revoke a standing approval", "doorward approvals revoke abcdefgh2345", 1, 1,
		func(ctx context.Context, args []string) error {
			if err := o.daemon.tell(ctx, "/admin/v1/grants", admin.Revocation{ID: args[0]}, &struct{}{}); err != nil {
				return approvalFailure(err)
			}
			return o.print(map[string]string{"revoked": args[0]}, fmt.Sprintf("revoked %s\n", oneWord(args[0])))
		})
}

// approvalFailure turns a failure of approvals into an error that explains it.
func approvalFailure(err error) error {
	var e *client.AdminError
	switch {
	case !errors.As(err, &e):
		return err
	case e.Code == "AGENT_SHELL":
		return shellFailure(e.Why)
	case e.Code == mail.PasskeyRequired:
		return fail(exitRefused, "%w", errPasskey)
	case e.Code == "NO_TERMINAL":
		return fail(exitRefused, "refused: only a person may decide; use your own terminal, or the console (doorward ui)")
	case e.Status == http.StatusNotFound:
		return fail(exitFailed, "no held call or approval has that number; see doorward pending and doorward approvals list")
	case e.Status == http.StatusBadRequest:
		return fmt.Errorf("%w: --for is once, session, 1h or always, and a reason has at most 400 bytes", errUsage)
	case e.Status == http.StatusForbidden:
		return fail(exitRefused, "refused: this is for the operator, or a token with the scope approve")
	}
	return unexplained(e)
}
