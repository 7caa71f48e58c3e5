package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/trust/plaintext"
	"github.com/doorward/doorward/internal/upstream/signin"
)

// login signs a person in to a server that asks for OAuth, with and without a
// running daemon, which finds the tokens by itself.
func login(ctx context.Context, args []string) error {
	o := newOptions("login")
	list := o.set.Bool("list", false, "show the sign-ins that there are")
	wait := o.set.Duration("wait", 10*time.Minute, "how long to wait for the browser")
	rest, err := o.parse(args)
	if err != nil {
		return err
	}
	switch {
	case *list && len(rest) == 0:
		return loginList(o)
	case *list || len(rest) != 1:
		return errUsage
	}
	c, s, err := o.server(rest[0])
	if err != nil {
		return err
	}
	settings, ok := daemon.SignIn(s, c)
	if !ok {
		return fail(exitFailed, "%s is not signed in to: it runs on this machine, has an Authorization in headers, or has oauth.grant off", s.Name)
	}
	store, err := o.signIns(c.Store.SignInKey)
	if err != nil {
		return err
	}
	return signIn(ctx, store, settings, *wait)
}

// signIn prints only the address on stdout. A person must read it before opening
// it: the command starts no browser.
func signIn(ctx context.Context, store *signin.Store, s signin.Settings, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	l, err := signin.Begin(ctx, store, s, listen.Callback)
	if err != nil {
		return fmt.Errorf("signing in to %s: %w", s.Server, err)
	}
	defer l.Close()
	fmt.Fprintf(stderr(), "doorward: to sign in to %s, open this address in a browser on this machine, if it is one you trust:\n", s.Server)
	fmt.Fprintln(stdout(), l.URL)
	r, err := l.Wait(ctx)
	if err != nil {
		return fmt.Errorf("signing in to %s: %w", s.Server, err)
	}
	fmt.Fprintf(stderr(), "doorward: signed in to %s at %s%s\n", s.Server, plaintext.Line(r.Issuer), lasts(r))
	return nil
}

// lasts says what a sign-in is good for.
func lasts(r signin.Result) string {
	text := ""
	if len(r.Scopes) > 0 {
		text += " for " + strings.Join(r.Scopes, " ")
	}
	switch {
	case r.Renews:
		text += ", renewed by itself"
	case !r.Expires.IsZero():
		text += ", until " + r.Expires.Format(time.RFC3339)
	}
	return text
}

// server finds a server of the configuration.
func (o *options) server(name string) (*config.Config, *config.Server, error) {
	c, problems := o.load()
	if c == nil {
		for _, p := range problems {
			fmt.Fprintln(stderr(), p)
		}
		return nil, nil, fail(exitFailed, "the configuration has problems")
	}
	s := c.Servers[name]
	switch {
	case s == nil || s.Disabled:
		return nil, nil, fail(exitFailed, "no server %q is configured", name)
	case s.Refused != "":
		return nil, nil, fail(exitFailed, "%s is refused: %s", name, s.Refused)
	}
	return c, s, nil
}

// signIns opens the store.
func (o *options) signIns(key secret.Value) (*signin.Store, error) {
	state, err := o.stateDir()
	if err != nil {
		return nil, err
	}
	return signin.OpenStore(signin.Options{Dir: state, Key: key})
}

// key is what seals the sign-ins by the configuration, as far as there is one.
func (o *options) key() secret.Value {
	if c, _ := o.load(); c != nil {
		return c.Store.SignInKey
	}
	return secret.Value{}
}

func loginList(o *options) error {
	store, err := o.signIns(o.key())
	if err != nil {
		return err
	}
	all, sealed, err := store.List()
	if err != nil {
		return err
	}
	if sealed > 0 {
		fmt.Fprintf(stderr(), "doorward: %d sign-ins do not open with this key\n", sealed)
	}
	if o.json {
		return printJSON(all)
	}
	w := tabwriter.NewWriter(stdout(), 0, 8, 2, ' ', 0)
	for _, l := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\tsince %s\n", l.Server, l.State, plaintext.Line(l.Issuer), strings.Join(l.Scopes, " "), l.Signed.Format(time.RFC3339))
	}
	return w.Flush()
}

// logout forgets a sign-in here, and tells the authorization server.
func logout(ctx context.Context, args []string) error {
	o := newOptions("logout")
	rest, err := o.parse(args)
	if err != nil {
		return err
	}
	if len(rest) != 1 {
		return errUsage
	}
	store, err := o.signIns(o.key())
	if err != nil {
		return err
	}
	var settings *signin.Settings
	if c, _ := o.load(); c != nil && c.Servers[rest[0]] != nil {
		if s, ok := daemon.SignIn(c.Servers[rest[0]], c); ok {
			settings = &s
		}
	}
	gone, told, err := store.Logout(ctx, rest[0], settings)
	switch {
	case err != nil:
		return err
	case gone == 0:
		return &failure{status: exitFailed, err: errors.New("there was no sign-in to " + rest[0])}
	case told != nil:
		fmt.Fprintf(stderr(), "doorward: signed out of %s here; tokens may live on at the authorization server: %v\n", rest[0], told)
	default:
		fmt.Fprintf(stderr(), "doorward: signed out of %s\n", rest[0])
	}
	return nil
}
