package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/downstream/authn"
)

// newToken returns the commands that make, list and revoke bearer tokens, with and without
// a running daemon.
func newToken() *cobra.Command {
	n := &tokenMaker{o: newInvocation()}
	n.o.set.Var((*lifetime)(&n.expires), "expires", "how long the token is valid, such as 720h or 30d; 0: until revoked")
	n.o.set.Var((*joined)(&n.scope), "scope", "server:NAME, tool:SERVER/NAME, agent, instructions, admin, approve; comma-separated, or repeated")
	n.o.set.Var((*lifetime)(&n.overlap), "overlap", "replace the token of that name, which stays valid for this long")
	list, revoke := newInvocation(), newInvocation()
	list.narrows()
	return group("token", "manage bearer tokens for TCP listeners",
		n.o.command("new NAME [--scope S] [--expires 720h] [--overlap 24h] [--json]", "make a token and print it once",
			"doorward token new ci --scope server:notes --expires 720h", 1, 1,
			func(_ context.Context, args []string) (err error) {
				if n.store, err = tokens(n.o); err != nil {
					return err
				}
				return wrongToken(n.make(args[0]))
			}),
		list.command("list [--json]", "list the tokens", "doorward token list", 0, 0,
			func(context.Context, []string) error { return tokenList(list) }),
		revoke.command("revoke NAME|ID", "revoke a token", "doorward token revoke ci", 1, 1,
			func(_ context.Context, args []string) error { return tokenRevoke(revoke, args[0]) }))
}

// tokens opens the store of tokens.
func tokens(o *invocation) (*authn.Store, error) {
	state, err := o.stateDir()
	if err != nil {
		return nil, err
	}
	return authn.NewStore(state), nil
}

// tokenMaker is one run of `token new`.
type tokenMaker struct {
	o       *invocation
	store   *authn.Store
	expires time.Duration
	overlap time.Duration
	scope   string
}

func (n *tokenMaker) make(name string) error {
	if n.o.set.Lookup("overlap").Changed {
		return n.rotate(name)
	}
	secret, id, err := n.store.NewToken(name, n.expires, n.scope)
	if err != nil {
		return err
	}
	undo := func() error { _, err := n.store.Revoke(id); return err }
	return n.show(secret, undo, map[string]string{"id": id, "name": name, "token": secret})
}

// wrongToken marks an error about the name, scope, expiry or overlap of a new token as wrong usage.
func wrongToken(err error) error {
	if errors.Is(err, authn.ErrName) || errors.Is(err, authn.ErrScope) || errors.Is(err, authn.ErrExpiry) || errors.Is(err, authn.ErrOverlap) {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	return err
}

func (n *tokenMaker) rotate(name string) error {
	r := authn.Rotation{Overlap: n.overlap, Expires: n.expires}
	if n.o.set.Lookup("scope").Changed {
		r.Scope = &n.scope
	}
	made, err := n.store.Rotate(name, r)
	if err != nil {
		return err
	}
	until := made.Before.Expires.UTC().Format(time.RFC3339)
	err = n.show(made.Secret, func() error { return n.store.Undo(made) }, map[string]string{"id": made.ID, "name": name,
		"token": made.Secret, "succeeds": made.Before.ID, "until": until})
	if err == nil {
		fmt.Fprintf(stderr(), "doorward: the previous token (%s) is accepted until %s\n", made.Before.ID, until)
	}
	return err
}

// show prints the token once.
func (n *tokenMaker) show(secret string, undo func() error, fields map[string]string) error {
	if err := printOnce(func() error { return n.o.printUnbroken(fields, secret+"\n") }, undo); err != nil {
		return err
	}
	if named := scopeServers(n.scope); len(named) > 0 {
		hintUnconfigured(n.o.options, named...)
	}
	if !n.o.json {
		fmt.Fprintln(stderr(), "doorward: this token is shown once; only its digest is kept")
	}
	return nil
}

func tokenRevoke(o *invocation, idOrName string) error {
	store, err := tokens(o)
	if err != nil {
		return err
	}
	revoked, err := store.Revoke(idOrName)
	for _, t := range revoked {
		fmt.Fprintf(stderr(), "doorward: token %s (%s) is revoked\n", t.Name, t.ID)
	}
	return err
}

func tokenList(o *invocation) error {
	store, err := tokens(o)
	if err != nil {
		return err
	}
	all, err := store.List()
	if err != nil {
		return err
	}
	if len(all) == 0 {
		fmt.Fprintln(stderr(), "doorward: there are no tokens; doorward token new makes one")
	}
	var rows [][]string
	for _, t := range shown(all) {
		rows = append(rows, []string{t.ID, t.Name, fmt.Sprint("revoked ", t.Revoked), "expires " + orDash(t.Expires), "scope " + orDash(t.Scope)})
	}
	return o.print(shown(all), o.narrowed(table(rows...)))
}

// hintUnknownToken prints a hint if a principal is a token that does not exist. The tokens env
// and file are not in the store.
func hintUnknownToken(o *invocation, principal string) {
	name, isToken := strings.CutPrefix(principal, "token:")
	store, err := tokens(o)
	if !isToken || name == "env" || name == "file" || err != nil {
		return
	}
	all, err := store.List()
	if err == nil && !slices.ContainsFunc(all, func(t authn.Token) bool { return t.Name == name }) {
		fmt.Fprintf(stderr(), "doorward: hint: there is no token %s; the decision is that for one without a scope\n", name)
	}
}

// tokenLine is a token as `token list --json` prints it.
type tokenLine struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Scope     string `json:"scope"`
	Expires   string `json:"expires"`
	Revoked   bool   `json:"revoked"`
	Succeeded bool   `json:"succeeded,omitempty"` // a newer token has its name
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
