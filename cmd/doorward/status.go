package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/daemon/policycheck"
	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream/process"
)

// newStatus returns the command that shows listeners and servers.
func newStatus() *cobra.Command {
	o := newInvocation()
	o.narrows()
	wait := o.set.Duration("wait", 0, "wait up to this long for the daemon to become ready")
	return o.command("status [--wait 10s] [--json] [-v]", "show listeners, servers and what is enforced", "doorward status --wait 10s", 0, 0,
		func(ctx context.Context, _ []string) (err error) {
			var s admin.Status
			for deadline := time.Now().Add(*wait); ; time.Sleep(50 * time.Millisecond) {
				err = o.daemon.ask(ctx, "/admin/v1/status", &s)
				if err == nil && s.Ready || time.Now().After(deadline) || ctx.Err() != nil {
					break
				}
			}
			if err != nil {
				return err
			}
			if o.verbose {
				return o.print(s, statusText(s))
			}
			return o.print(s, statusNarrow(s, columns()))
		})
}

func statusText(s admin.Status) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "doorward %s\tready %v\tsessions %d\taudit %s at %d\n", s.Version, s.Ready, s.Sessions, s.Audit.State, s.Audit.Seq)
	fmt.Fprintf(w, "configuration\t%s\t%s\n\n", plaintext.Line(cmp.Or(s.Configuration.File, "the built-in defaults")), plaintext.Line(notInForce(s.Configuration)))
	if text := unrecorded(s.Audit); text != "" {
		fmt.Fprintf(w, "record\t%s\n\n", plaintext.Line(text))
	}
	for _, l := range s.Listeners {
		fmt.Fprintf(w, "%s\t%s\t%s\tauth %s\t%s\n", l.State, l.Network, l.Addr, l.Auth, l.Reason)
		for _, reason := range slices.Sorted(maps.Keys(l.Refused)) {
			fmt.Fprintf(w, "\t\t\trefused %d\t%s\n", l.Refused[reason], reason)
		}
	}
	if a := s.Authentication; a.Missing+a.Invalid+a.Limited > 0 {
		fmt.Fprintf(w, "\nnot authenticated\tno token %d\tinvalid %d\tnot checked %d\n", a.Missing, a.Invalid, a.Limited)
	}
	if why := s.Authentication.Issuer; why != "" {
		fmt.Fprintf(w, "\naccess tokens\t%s\n", plaintext.Line(why))
	}
	fmt.Fprintln(w)
	for _, v := range s.Servers {
		fmt.Fprintf(w, "%s\t%s\t%s\tera %s\tinstances %d\tsandbox %s\t%s\n", v.Name, v.Kind, v.State, v.Era, v.Instances, v.Sandbox, plaintext.Line(v.Reason))
	}
	fmt.Fprintln(w)
	for _, v := range s.Servers {
		for _, line := range v.Stderr {
			fmt.Fprintf(w, "%s\tstandard error\t%s\n", v.Name, plaintext.Line(line))
		}
		printContainment(w, v)
		for _, p := range v.Problems {
			fmt.Fprintf(w, "%s\tdocument\t%s\n", v.Name, plaintext.Line(p))
		}
		for _, hint := range v.Unseen {
			fmt.Fprintf(w, "%s\tnot seen\t%s\n", v.Name, hint)
		}
		for _, p := range v.Unmatched {
			fmt.Fprintf(w, "%s\tmatches no tool\t%s\tno tool of this server has that name: list the permitted tools in tools.allow\n", v.Name, strconv.Quote(p))
		}
		for _, item := range v.Withheld {
			fmt.Fprintf(w, "%s\twithheld\t%s\tdoorward trust %s shows and approves it\n", v.Name, itemName(item), v.Name)
		}
	}
	w.Flush() // a strings.Builder returns no errors
	return b.String()
}

// printContainment prints the enforced measures of a server's sandbox, and the
// others each with its reason.
func printContainment(w io.Writer, v admin.Server) {
	var enforced []string
	for _, m := range v.Containment {
		if m.State == process.Enforced {
			enforced = append(enforced, m.Name)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", v.Name, m.State, m.Name, plaintext.Line(m.Detail))
	}
	if len(enforced) > 0 {
		fmt.Fprintf(w, "%s\t%s\t%s\n", v.Name, process.Enforced, strings.Join(enforced, ", "))
	}
}

// newWhoami returns the command that shows the principal and the facts of this caller.
func newWhoami() *cobra.Command {
	o := newInvocation()
	o.narrows()
	return o.command("whoami [--json] [-v]", "show what the daemon knows of this caller, each fact with its grade", "doorward whoami", 0, 0,
		func(ctx context.Context, _ []string) error { return showCaller(ctx, o) })
}

func showCaller(ctx context.Context, o *invocation) error {
	var who struct {
		Principal string `json:"principal"`
		Facts     []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
			Grade string `json:"grade"`
		} `json:"facts"`
	}
	if err := o.daemon.ask(ctx, "/admin/v1/whoami", &who); err != nil {
		return err
	}
	rows := [][]string{{plaintext.Line(who.Principal)}}
	for _, f := range who.Facts {
		rows = append(rows, []string{"  " + plaintext.Line(f.Name), f.Grade, plaintext.Line(f.Value)}) // the end of a line may be cut
	}
	return o.print(who, o.narrowed(table(rows...)))
}

// newExplain returns the command that shows the decision about an act of any principal.
func newExplain() *cobra.Command {
	o := newInvocation()
	as := o.set.String("as", "", "the principal, such as token:ci")
	arguments := o.set.String("args", "", "the call's arguments, a JSON object")
	local := o.set.Bool("local", false, "treat the request as one over the Unix socket or a loopback listener")
	confirmed := o.set.Bool("confirmed", false, "treat the calling program as confirmed")
	return o.command("explain --as P ACTION [RESOURCE] [--args JSON] [--local] [--confirmed]", "show a decision and the rule behind it",
		"doorward explain --as token:ci tools/call notes/add_note", 1, 2,
		func(ctx context.Context, rest []string) error {
			if *as == "" {
				return fmt.Errorf("%w: --as is missing; name a principal such as uid:1000 or token:ci", errUsage)
			}
			if _, _, err := principal.Parse(*as); err != nil {
				return fmt.Errorf("%w: --as: %w; name one such as uid:1000 or token:ci", errUsage, err)
			}
			hintUnknownToken(o, *as)
			if !policycheck.Known(rest[0]) {
				fmt.Fprintf(stderr(), "doorward: Doorward has no action %s; check that it is spelled like the method\n", plaintext.Line(rest[0]))
			}
			server, name, _ := strings.Cut(strings.Join(rest[1:], ""), "/")
			if err := addresseeOf(rest[0], server); err != nil {
				return err
			}
			q := url.Values{"as": {*as}, "action": {rest[0]}, "server": {server}, "name": {name},
				"local": {strconv.FormatBool(*local)}, "confirmed": {strconv.FormatBool(*confirmed)}}
			if *arguments != "" {
				if _, err := toolArguments(*arguments, nil); err != nil {
					return err
				}
				q.Set("args", *arguments)
			}
			return showDecision(ctx, o, q)
		})
}

// addresseeOf refuses the resource of an act of messaging, which has an addressee instead: the
// daemon would take the name of an agent for one of a server.
func addresseeOf(action, server string) error {
	switch {
	case !strings.HasPrefix(action, agent.ServerName+".") || server == "" || server == agent.ServerName:
		return nil
	case policy.HasArguments(action):
		return fmt.Errorf(`%w: %s has no resource: write what rules read of the addressee, such as --args '{"to":{"name":%q,"own":true,"near":true}}', where own is an agent of the same user or family, and near one of the same namespace`, errUsage, action, server)
	}
	return fmt.Errorf("%w: %s has no resource", errUsage, plaintext.Line(action))
}

// showDecision asks the daemon and prints the decision. A denial has exit status 3.
func showDecision(ctx context.Context, o *invocation, q url.Values) error {
	var e admin.Explanation
	if err := o.daemon.ask(ctx, "/admin/v1/explain?"+q.Encode(), &e); err != nil {
		return err
	}
	err := o.print(e, explained(e)+"\n")
	if err == nil && e.Decision != "allow" {
		return &failure{status: exitRefused, err: fmt.Errorf("denied by %s", e.Rule), quiet: true}
	}
	return err
}

// explained returns one line for a person: the decision, the rule and its position.
func explained(e admin.Explanation) string {
	rule := e.Rule
	if e.At != "" && e.At != e.Rule {
		rule += " (" + e.At + ")"
	}
	text := fmt.Sprintf("%s by %s: %s", e.Decision, rule, e.Reason)
	switch {
	case e.Grant != "":
		text += fmt.Sprintf("; %s would hold it for the operator, and grant %s lets it through", e.Ask, e.Grant)
	case e.Ask != "":
		text += "; held for the operator by " + e.Ask
	}
	return text
}
