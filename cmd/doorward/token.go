package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/doorward/doorward/internal/authn"
)

// token makes, lists and revokes bearer tokens, with and without a running
// daemon.
func token(_ context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	o := newOptions("token " + args[0])
	expires := o.set.Duration("expires", 0, "how long the token is valid; 0: until revoked")
	scope := o.set.String("scope", "", "server:NAME, tool:SERVER/NAME, agent, instructions, admin; comma-separated")
	rest, err := o.parse(args[1:])
	if err != nil {
		return err
	}
	state, err := o.stateDir()
	if err != nil {
		return err
	}
	store := authn.NewStore(state)
	switch {
	case args[0] == "new" && len(rest) == 1:
		return tokenNew(o, store, rest[0], *expires, *scope)
	case args[0] == "list" && len(rest) == 0:
		return tokenList(o, store)
	case args[0] == "revoke" && len(rest) == 1:
		t, err := store.Revoke(rest[0])
		if err == nil {
			fmt.Fprintf(os.Stderr, "doorward: token %s (%s) is revoked\n", t.Name, t.ID)
		}
		return err
	}
	return errUsage
}

func tokenNew(o *options, store *authn.Store, name string, expires time.Duration, scope string) error {
	secret, id, err := store.NewToken(name, expires, scope)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(map[string]string{"id": id, "name": name, "token": secret})
	}
	fmt.Println(secret)
	fmt.Fprintln(os.Stderr, "doorward: this token is shown once; only its digest is kept")
	return nil
}

func tokenList(o *options, store *authn.Store) error {
	all, err := store.List()
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(shown(all))
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	for _, t := range shown(all) {
		fmt.Fprintf(w, "%s\t%s\tscope %s\texpires %s\trevoked %v\n", t.ID, t.Name, orDash(t.Scope), orDash(t.Expires), t.Revoked)
	}
	return w.Flush()
}

// tokenLine is a token as `token list --json` gives it.
type tokenLine struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Scope   string `json:"scope"`
	Expires string `json:"expires"`
	Revoked bool   `json:"revoked"`
}

func shown(all []authn.Token) []tokenLine {
	out := make([]tokenLine, 0, len(all))
	for _, t := range all {
		l := tokenLine{ID: t.ID, Name: t.Name, Scope: t.Scope, Revoked: !t.Revoked.IsZero()}
		if !t.Expires.IsZero() {
			l.Expires = t.Expires.UTC().Format(time.RFC3339)
		}
		out = append(out, l)
	}
	return out
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
