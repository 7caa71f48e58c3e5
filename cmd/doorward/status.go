package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/doorward/doorward/internal/admin"
	"github.com/doorward/doorward/internal/principal"
)

// status shows listeners and servers.
func status(ctx context.Context, args []string) error {
	o := newOptions("status")
	wait := o.set.Duration("wait", 0, "wait so long for the daemon to be ready")
	if _, err := o.parse(args); err != nil {
		return err
	}
	c, err := o.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	var s admin.Status
	for deadline := time.Now().Add(*wait); ; time.Sleep(50 * time.Millisecond) {
		err = c.Admin(ctx, "/admin/v1/status", &s)
		if err == nil && s.Ready || time.Now().After(deadline) || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(s)
	}
	return printStatus(s)
}

func printStatus(s admin.Status) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "doorward %s\tready %v\tsessions %d\taudit %s at %d\n\n", s.Version, s.Ready, s.Sessions, s.Audit.State, s.Audit.Seq)
	for _, l := range s.Listeners {
		fmt.Fprintf(w, "%s\t%s\t%s\tauth %s\t%s\n", l.State, l.Network, l.Addr, l.Auth, l.Reason)
	}
	fmt.Fprintln(w)
	for _, v := range s.Servers {
		fmt.Fprintf(w, "%s\t%s\t%s\tera %s\tinstances %d\t%s\n", v.Name, v.Kind, v.State, v.Era, v.Instances, v.Reason)
	}
	return w.Flush()
}

// whoami shows what the daemon knows of this caller.
func whoami(ctx context.Context, args []string) error {
	o := newOptions("whoami")
	if _, err := o.parse(args); err != nil {
		return err
	}
	c, err := o.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	var who struct {
		Principal string `json:"principal"`
		Facts     []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
			Grade string `json:"grade"`
		} `json:"facts"`
	}
	if err := c.Admin(ctx, "/admin/v1/whoami", &who); err != nil {
		return err
	}
	if o.json {
		return printJSON(who)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "%s\n", who.Principal)
	for _, f := range who.Facts {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", f.Name, f.Value, f.Grade)
	}
	return w.Flush()
}

// explain asks for the decision on somebody else's behalf.
func explain(ctx context.Context, args []string) error {
	o := newOptions("explain")
	as := o.set.String("as", "", "the principal, such as token:ci")
	rest, err := o.parse(args)
	if err != nil {
		return err
	}
	if len(rest) < 1 || len(rest) > 2 || *as == "" {
		return errUsage
	}
	if _, _, err := principal.Parse(*as); err != nil {
		return fmt.Errorf("%w: --as %s: %w", errUsage, *as, err)
	}
	server, name, _ := strings.Cut(strings.Join(rest[1:], ""), "/")
	c, err := o.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	q := url.Values{"as": {*as}, "action": {rest[0]}, "server": {server}, "name": {name}}
	var e admin.Explanation
	if err := c.Admin(ctx, "/admin/v1/explain?"+q.Encode(), &e); err != nil {
		return err
	}
	if o.json {
		err = printJSON(e)
	} else {
		fmt.Printf("%s by %s: %s\n", e.Decision, e.Rule, e.Reason)
	}
	if err == nil && e.Decision != "allow" {
		return &failure{status: exitRefused, err: fmt.Errorf("denied by %s", e.Rule), quiet: true}
	}
	return err
}
