package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/client"
)

// pathSessions is the path of the operator's resources about sessions.
const pathSessions = "/auth/admin/sessions"

// deliverySession is a session as `auth token list --json` prints it.
type deliverySession struct {
	ID      string   `json:"id"`
	Subject string   `json:"subject"`
	Scope   []string `json:"scope"`
	Project string   `json:"project"`
	Client  string   `json:"client"` // claimed
	CI      bool     `json:"ci"`
	Issued  string   `json:"issued"`
	Expires string   `json:"expires"`
	Ended   string   `json:"ended"`  // empty: it has not ended
	Reason  string   `json:"reason"` // of its end
}

// newAuthToken returns the commands that make tokens for CI, and list and end sessions of
// any kind.
func newAuthToken() *cobra.Command {
	create, list, revoke := newInvocation(), newInvocation(), newInvocation()
	list.narrows()
	scope := create.set.String("scope", "structural", "what the token may read; only structural is possible")
	ttl := create.set.Duration("ttl", 24*time.Hour, "lifetime, at most a day")
	name := create.set.String("name", "ci", "name of the token's user")
	return group("token", "manage tokens for CI",
		create.command("create [--scope structural] [--ttl 24h] [--name N] [--json]", "make a token and print it once",
			"doorward auth token create --ttl 1h --name build", 0, 0,
			func(ctx context.Context, _ []string) error {
				if *scope != "structural" || *ttl < time.Second || *ttl > 24*time.Hour || *name == "" {
					return errUsage
				}
				return createSession(ctx, create, map[string]any{"scope": *scope, "ttl_s": int64(ttl.Seconds()), "name": *name})
			}),
		list.command("list [--json]", "list the sessions", "doorward auth token list", 0, 0,
			func(ctx context.Context, _ []string) error { return listSessions(ctx, list) }),
		revoke.command("revoke ID [--json]", "end a session", "doorward auth token revoke 0123456789abcdef", 1, 1,
			func(ctx context.Context, args []string) error { return revokeSession(ctx, revoke, args[0]) }))
}

// createSession makes a token for CI and prints it once.
func createSession(ctx context.Context, o *invocation, in map[string]any) error {
	var made client.Session
	if err := o.daemon.authPost(ctx, pathSessions, in, &made); err != nil {
		return err
	}
	return printOnce(func() error { return showSession(o, made) }, func() error {
		return o.daemon.authPost(ctx, pathSessions+"/"+url.PathEscape(made.ID)+"/revoke", struct{}{}, nil)
	})
}

func showSession(o *invocation, s client.Session) error {
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

func listSessions(ctx context.Context, o *invocation) error {
	all := struct {
		Sessions []deliverySession `json:"sessions"`
	}{Sessions: []deliverySession{}}
	if err := o.daemon.auth(ctx, http.MethodGet, pathSessions, nil, &all); err != nil {
		return err
	}
	rows := [][]string{{"SESSION", "SUBJECT", "SCOPE", "EXPIRES", "STATE", "CLIENT", "PROJECT"}}
	for _, s := range all.Sessions {
		state := "lives"
		if s.Ended != "" {
			state = s.Reason
		}
		rows = append(rows, []string{oneWord(s.ID), oneWord(s.Subject), oneWord(strings.Join(s.Scope, ",")), oneWord(s.Expires),
			oneWord(state), oneWord(s.Client), oneWord(s.Project)})
	}
	return o.print(all.Sessions, o.narrowed(table(rows...)))
}

func revokeSession(ctx context.Context, o *invocation, id string) error {
	if err := o.daemon.authPost(ctx, pathSessions+"/"+url.PathEscape(id)+"/revoke", struct{}{}, nil); err != nil {
		return err
	}
	return o.print(map[string]string{"id": id, "state": "revoked"}, fmt.Sprintf("session %s is revoked\n", oneWord(id)))
}
