package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/upstream/signin"
)

// newLogin returns the command that signs a person in to a server that requires OAuth, with
// and without a running daemon. A running daemon notices the new tokens.
func newLogin() *cobra.Command {
	o := newInvocation()
	o.narrows()
	list := o.set.Bool("list", false, "list the stored sign-ins")
	wait := o.set.Duration("wait", 10*time.Minute, "how long to wait for the browser")
	return o.command("login SERVER | --list [--json]", "sign in to a server that asks for OAuth", "doorward login docs", 0, 1,
		func(ctx context.Context, args []string) error {
			switch {
			case *list && len(args) == 0:
				return loginList(o)
			case *list || len(args) != 1:
				return errUsage
			}
			return loginTo(ctx, o, args[0], *wait)
		})
}

func loginTo(ctx context.Context, o *invocation, server string, wait time.Duration) error {
	c, s, err := configuredServer(o, server)
	if err != nil {
		return err
	}
	settings, ok := daemon.SignIn(s, c)
	if !ok {
		return fail(exitFailed, "%s needs no sign-in: it runs on this machine, has an Authorization in headers, or has oauth.grant off", s.Name)
	}
	store, err := openSignIns(o, c.Store.SignInKey)
	if err != nil {
		return err
	}
	return signIn(ctx, store, settings, wait)
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
	fmt.Fprint(stderr(), codeTo(l))
	fmt.Fprintf(stderr(), "doorward: to sign in to %s, open this address in a browser on this machine, if it is one you trust:\n", s.Server)
	if _, err := fmt.Fprintln(stdout(), l.URL); err != nil {
		return fmt.Errorf("printing the address: %w", err)
	}
	r, err := l.Wait(ctx)
	if err != nil {
		return fmt.Errorf("signing in to %s: %w", s.Server, err)
	}
	fmt.Fprintf(stderr(), "doorward: signed in to %s at %s%s\n", s.Server, plaintext.Line(r.Issuer), lasts(r))
	return nil
}

// codeTo returns which authorization server a sign-in is at, and which host gets the code of the
// browser. A hostile server can name the page of an honest provider and get the code itself, and
// the address shows only the page.
func codeTo(l *signin.Login) string {
	host := plaintext.Line(l.CodeTo)
	text := fmt.Sprintf("doorward: the authorization server is %s, and %s gets the code of the sign-in\n", plaintext.Line(l.Issuer), host)
	if u, err := url.Parse(l.URL); err != nil || !strings.EqualFold(u.Host, l.CodeTo) {
		text += fmt.Sprintf("doorward: the page is at another host: sign in only if %s belongs to its provider\n", host)
	}
	return text
}

// lasts returns the scopes and the validity of a sign-in as text.
func lasts(r signin.Result) string {
	text := ""
	if len(r.Scopes) > 0 {
		text += " for " + strings.Join(r.Scopes, " ")
	}
	switch {
	case r.Renews:
		text += ", renewed automatically"
	case !r.Expires.IsZero():
		text += ", until " + r.Expires.Format(time.RFC3339)
	}
	return text
}

// configuredServer returns the configuration and one of its servers.
func configuredServer(o *invocation, name string) (*config.Config, *config.Server, error) {
	c, err := configured(o.options)
	if err != nil {
		return nil, nil, err
	}
	s := c.Servers[name]
	switch {
	case s == nil || s.Disabled:
		return nil, nil, fail(exitFailed, "no server %q is configured in %s", name, cmp.Or(o.configFile(), "the built-in defaults"))
	case s.Refused != "":
		return nil, nil, fail(exitFailed, "%s is refused: %s", name, s.Refused)
	}
	return c, s, nil
}

// openSignIns opens the store of sign-ins.
func openSignIns(o *invocation, key secret.Value) (*signin.Store, error) {
	state, err := o.stateDir()
	if err != nil {
		return nil, err
	}
	return signin.OpenStore(signin.Options{Dir: state, Key: key})
}

func loginList(o *invocation) error {
	c, err := configured(o.options)
	if err != nil {
		return err
	}
	store, err := openSignIns(o, c.Store.SignInKey)
	if err != nil {
		return err
	}
	all, sealed, err := store.List()
	if err != nil {
		return err
	}
	if sealed > 0 {
		fmt.Fprintf(stderr(), "doorward: %d sign-ins cannot be decrypted with this key\n", sealed)
	}
	if len(all) == 0 && !o.json {
		fmt.Fprintln(stderr(), "doorward: there are no sign-ins; doorward login SERVER makes one")
	}
	var rows [][]string
	for _, l := range all {
		rows = append(rows, []string{l.Server, string(l.State), plaintext.Line(l.Issuer), strings.Join(l.Scopes, " "), "since " + l.Signed.Format(time.RFC3339)})
	}
	return o.print(all, o.narrowed(table(rows...)))
}

// newLogout returns the command that removes a sign-in, and revokes its tokens at the
// authorization server.
func newLogout() *cobra.Command {
	o := newInvocation()
	return o.command("logout SERVER", "forget a sign-in", "doorward logout docs", 1, 1,
		func(ctx context.Context, args []string) error { return logoutOf(ctx, o, args[0]) })
}

func logoutOf(ctx context.Context, o *invocation, server string) error {
	c, err := configured(o.options)
	if err != nil {
		return err
	}
	store, err := openSignIns(o, c.Store.SignInKey)
	if err != nil {
		return err
	}
	var settings *signin.Settings
	if c.Servers[server] != nil {
		if s, ok := daemon.SignIn(c.Servers[server], c); ok {
			settings = &s
		}
	}
	gone, told, err := store.Logout(ctx, server, settings)
	switch {
	case err != nil:
		return err
	case gone == 0:
		return fail(exitFailed, "there was no sign-in to %s; doorward login --list shows all", server)
	case told != nil:
		fmt.Fprintf(stderr(), "doorward: signed out of %s here; tokens may remain valid at the authorization server: %v\n", server, told)
	default:
		fmt.Fprintf(stderr(), "doorward: signed out of %s\n", server)
	}
	return nil
}
