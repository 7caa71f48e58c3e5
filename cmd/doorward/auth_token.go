package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/doorward/doorward/client"
)

// Paths of the operator's side of sessions.
const pathSessions = "/auth/admin/sessions"

// deliverySession is a session as `auth token list --json` gives it.
type deliverySession struct {
	ID      string   `json:"id"`
	Subject string   `json:"subject"`
	Scope   []string `json:"scope"`
	Project string   `json:"project"`
	Client  string   `json:"client"` // as it says
	CI      bool     `json:"ci"`
	Issued  string   `json:"issued"`
	Expires string   `json:"expires"`
	Ended   string   `json:"ended"`  // empty: it lives
	Reason  string   `json:"reason"` // of its end
}

// authToken is the operator's side: tokens for CI, and the end of any session.
func authToken(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	run := map[string]func(*operator, context.Context, []string) error{
		"create": (*operator).createSession, "list": (*operator).listSessions, "revoke": (*operator).revokeSession,
	}[args[0]]
	if run == nil {
		return fmt.Errorf("%w: unknown command %q", errUsage, args[0])
	}
	o := &operator{options: newOptions("auth token " + args[0])}
	err := run(o, ctx, args[1:])
	if o.client != nil {
		o.client.Close()
	}
	return err
}

// auth asks a route of instruction delivery.
func (o *operator) auth(ctx context.Context, method, path string, in, out any) error {
	if err := o.connect(); err != nil {
		return err
	}
	return deliveryFailure(o.client.Auth(ctx, method, path, "", in, out))
}

// createSession makes a token for CI and prints it once. A token that could not
// be printed is revoked again.
func (o *operator) createSession(ctx context.Context, args []string) error {
	scope := o.set.String("scope", "structural", "structural is all that CI may read")
	ttl := o.set.Duration("ttl", 24*time.Hour, "how long it is valid; at most a day")
	name := o.set.String("name", "ci", "who it is for")
	rest, err := o.parse(args)
	if err != nil {
		return err
	}
	if len(rest) > 0 || *scope != "structural" || *ttl < time.Second || *ttl > 24*time.Hour || *name == "" {
		return errUsage
	}
	var made client.Session
	in := map[string]any{"scope": *scope, "ttl_s": int64(ttl.Seconds()), "name": *name}
	if err := o.auth(ctx, http.MethodPost, pathSessions, in, &made); err != nil {
		return err
	}
	if err := o.showSession(made); err != nil {
		undone := o.auth(ctx, http.MethodPost, pathSessions+"/"+url.PathEscape(made.ID)+"/revoke", struct{}{}, nil)
		return errors.Join(fmt.Errorf("printing the token, which is revoked again: %w", err), undone)
	}
	return nil
}

func (o *operator) showSession(s client.Session) error {
	if o.json {
		return printJSON(s)
	}
	if _, err := fmt.Fprintln(stdout(), s.Token); err != nil {
		return err
	}
	fmt.Fprintf(stderr(), "doorward: session %s, valid until %s; this token is shown once, give it to the job as DOORWARD_SESSION\n",
		s.ID, s.Expires.Local().Format(time.RFC3339))
	return nil
}

func (o *operator) listSessions(ctx context.Context, args []string) error {
	rest, err := o.parse(args)
	if err != nil || len(rest) > 0 {
		return errors.Join(errUsage, err)
	}
	all := struct {
		Sessions []deliverySession `json:"sessions"`
	}{Sessions: []deliverySession{}}
	if err := o.auth(ctx, http.MethodGet, pathSessions, nil, &all); err != nil {
		return err
	}
	if o.json {
		return o.print(all.Sessions, "")
	}
	w := tabwriter.NewWriter(stdout(), 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SESSION\tSUBJECT\tSCOPE\tEXPIRES\tSTATE\tCLIENT\tPROJECT")
	for _, s := range all.Sessions {
		state := "lives"
		if s.Ended != "" {
			state = s.Reason
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", oneWord(s.ID), oneWord(s.Subject), oneWord(strings.Join(s.Scope, ",")), oneWord(s.Expires),
			oneWord(state), oneWord(s.Client), oneWord(s.Project))
	}
	return w.Flush()
}

func (o *operator) revokeSession(ctx context.Context, args []string) error {
	rest, err := o.parse(args)
	if err != nil {
		return err
	}
	id, err := one(rest)
	if err != nil {
		return err
	}
	if err := o.auth(ctx, http.MethodPost, pathSessions+"/"+url.PathEscape(id)+"/revoke", struct{}{}, nil); err != nil {
		return err
	}
	return o.print(map[string]string{"id": id, "state": "revoked"}, fmt.Sprintf("session %s is revoked\n", oneWord(id)))
}
