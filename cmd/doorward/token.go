package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/doorward/doorward/internal/downstream/authn"
)

// token makes, lists and revokes bearer tokens, with and without a running
// daemon.
func token(_ context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	o := newOptions("token " + args[0])
	n := &newToken{options: o}
	if args[0] == "new" {
		n.flags()
	}
	rest, err := o.parse(args[1:])
	if err != nil {
		return err
	}
	state, err := o.stateDir()
	if err != nil {
		return err
	}
	n.store = authn.NewStore(state)
	switch {
	case args[0] == "new" && len(rest) == 1:
		return n.make(rest[0])
	case args[0] == "list" && len(rest) == 0:
		return tokenList(o, n.store)
	case args[0] == "revoke" && len(rest) == 1:
		return tokenRevoke(n.store, rest[0])
	}
	return errUsage
}

// newToken is one `token new`.
type newToken struct {
	*options
	store   *authn.Store
	expires time.Duration
	overlap time.Duration
	scope   string
}

func (n *newToken) flags() {
	n.set.DurationVar(&n.expires, "expires", 0, "how long the token is valid; 0: until revoked")
	n.set.StringVar(&n.scope, "scope", "", "server:NAME, tool:SERVER/NAME, agent, instructions, admin; comma-separated")
	n.set.DurationVar(&n.overlap, "overlap", 0, "succeed the token of that name, which is accepted that much longer")
}

func (n *newToken) given(name string) (given bool) {
	n.set.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	return given
}

func (n *newToken) make(name string) error {
	if n.given("overlap") {
		return n.rotate(name)
	}
	secret, id, err := n.store.NewToken(name, n.expires, n.scope)
	if err != nil {
		return err
	}
	return n.show(secret, id, map[string]string{"id": id, "name": name, "token": secret})
}

func (n *newToken) rotate(name string) error {
	r := authn.Rotation{Overlap: n.overlap, Expires: n.expires}
	if n.given("scope") {
		r.Scope = &n.scope
	}
	made, err := n.store.Rotate(name, r)
	if err != nil {
		return err
	}
	until := made.Before.Expires.UTC().Format(time.RFC3339)
	fmt.Fprintf(stderr(), "doorward: the token before it (%s) is accepted until %s\n", made.Before.ID, until)
	return n.show(made.Secret, made.ID, map[string]string{"id": made.ID, "name": name, "token": made.Secret,
		"succeeds": made.Before.ID, "until": until})
}

// show prints the token once. A token that could not be printed is revoked again.
func (n *newToken) show(secret, id string, fields map[string]string) (err error) {
	if n.json {
		err = printJSON(fields)
	} else {
		_, err = fmt.Fprintln(stdout(), secret)
	}
	if err != nil {
		_, undone := n.store.Revoke(id)
		return errors.Join(fmt.Errorf("printing the token, which is revoked again: %w", err), undone)
	}
	if !n.json {
		fmt.Fprintln(stderr(), "doorward: this token is shown once; only its digest is kept")
	}
	return nil
}

func tokenRevoke(store *authn.Store, idOrName string) error {
	revoked, err := store.Revoke(idOrName)
	for _, t := range revoked {
		fmt.Fprintf(stderr(), "doorward: token %s (%s) is revoked\n", t.Name, t.ID)
	}
	return err
}

func tokenList(o *options, store *authn.Store) error {
	all, err := store.List()
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(shown(all))
	}
	w := tabwriter.NewWriter(stdout(), 0, 8, 2, ' ', 0)
	for _, t := range shown(all) {
		fmt.Fprintf(w, "%s\t%s\tscope %s\texpires %s\trevoked %v\n", t.ID, t.Name, orDash(t.Scope), orDash(t.Expires), t.Revoked)
	}
	return w.Flush()
}

// tokenLine is a token as `token list --json` gives it.
type tokenLine struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Scope     string `json:"scope"`
	Expires   string `json:"expires"`
	Revoked   bool   `json:"revoked"`
	Succeeded bool   `json:"succeeded,omitempty"` // a newer one has its name
}

func shown(all []authn.Token) []tokenLine {
	out := make([]tokenLine, 0, len(all))
	for _, t := range all {
		l := tokenLine{ID: t.ID, Name: t.Name, Scope: t.Scope, Revoked: !t.Revoked.IsZero(), Succeeded: !t.Succeeded.IsZero()}
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
