package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/downstream/credential"
)

// newAuth returns the commands for delivery sessions: the hooks of clients, the
// diagnosis, and the operator's tokens for CI.
func newAuth() *cobra.Command {
	return group("auth", "manage and diagnose sessions of instruction delivery",
		newSessionStart(), newSessionEnd(), newAuthStatus(), newAuthCheck(), newAuthHeader(), newAuthToken())
}

// sourceFile is the source of a token that is not from an environment variable.
const sourceFile = "session file"

// presented is the token that this command would present, with its source.
type presented struct {
	token  string
	source string   // a variable, or sourceFile; empty: there is no token
	why    string   // why the token of that source is not used; empty: it is used
	passed []string // session files that were skipped, each with the reason
}

// guidance is the state of instruction delivery for the caller of a command.
type guidance struct{ o *invocation }

// presented returns the token of the environment or a session file. It opens no session,
// because the commands that call it only report. A variable that is set takes precedence
// even if its token is unusable.
func (g guidance) presented() presented {
	token, variable, err := client.TokenFromEnv(lookup)
	if err != nil {
		return presented{source: variable, why: err.Error()}
	}
	if token != "" {
		return presented{token: token, source: variable}
	}
	dir, err := g.o.sessionDir()
	if err != nil {
		return presented{passed: []string{err.Error()}}
	}
	f, refused, err := client.TokenFromFile(dir)
	p := presented{}
	for _, r := range refused {
		p.passed = append(p.passed, r.Error())
	}
	switch {
	case err == nil:
		p.token, p.source = f.Token, sourceFile
	case !errors.Is(err, credential.ErrNone):
		p.passed = append(p.passed, err.Error())
	}
	return p
}

// delivery is the state of instruction delivery for this command's caller, as
// --json prints it.
type delivery struct {
	client.Delivery
	Source string   `json:"source"`           // of the token: a variable, "session file", or empty
	Valid  bool     `json:"valid"`            // there is a token, and the daemon accepts it
	Why    string   `json:"detail,omitempty"` // the problem of the token
	Passed []string `json:"passed,omitempty"` // session files that were skipped, each with the reason
}

// Reasons that the command determines; all others come from the daemon.
const (
	reasonNoToken = "no_token"
	reasonExpired = "expired"
)

// delivery asks the daemon for the state of delivery. If the daemon does not accept the
// token, the reason is derived from its form: the daemon does not reveal what is wrong
// with a token.
func (g guidance) delivery(ctx context.Context, c *client.Client) (delivery, error) {
	p := g.presented()
	d := delivery{Source: p.source, Why: p.why, Passed: p.passed}
	var err error
	d.Delivery, err = c.Delivery(ctx, p.token)
	if err == nil {
		d.Valid = p.token != ""
		return d, nil
	}
	if p.token == "" || !errors.Is(err, client.ErrStatus(http.StatusUnauthorized)) {
		return d, deliveryFailure(err)
	}
	d.Why = p.source + ": the daemon does not accept the token"
	if d.Delivery, err = c.Delivery(ctx, ""); err != nil {
		return d, deliveryFailure(err)
	}
	if d.Reason = reasonNoToken; strings.HasPrefix(p.token, "dws1.") {
		d.Reason = reasonExpired // a session's token: expired, revoked, or of another installation
	}
	return d, nil
}

// newAuthStatus returns the command that prints the state. It exits with 0 in every state.
func newAuthStatus() *cobra.Command {
	o := newInvocation()
	return o.command("status [--json]", "show the state of delivery to this caller", "doorward auth status", 0, 0,
		func(ctx context.Context, _ []string) error {
			d, err := guidance{o}.look(ctx)
			if err != nil {
				d.State, d.Reason, d.Why = "unknown", "", err.Error()
			}
			return guidance{o}.print(d)
		})
}

// newAuthCheck returns the command that checks the state for scripts: its exit status is 0
// if there is a valid session and calls are not refused, and with --full only if delivery
// is complete too.
func newAuthCheck() *cobra.Command {
	o := newInvocation()
	full := o.set.Bool("full", false, "exit 1 also when the session is valid but guidance is missing")
	return o.command("check [--full] [--json]", "exit 0 when there is a valid session", "doorward auth check --full", 0, 0,
		func(ctx context.Context, _ []string) error {
			d, err := guidance{o}.look(ctx)
			if err == nil {
				err = guidance{o}.print(d)
			}
			if err != nil {
				return err
			}
			return verdict(d, *full)
		})
}

func verdict(d delivery, full bool) error {
	switch {
	case !d.Valid:
		return &failure{status: exitRefused, err: errors.New("there is no valid session"), quiet: true}
	case d.State == "refused":
		return &failure{status: exitRefused, err: errors.New("calls are refused until guidance is available"), quiet: true}
	case full && d.State != "full":
		return &failure{status: exitFailed, err: errors.New("delivery is degraded"), quiet: true}
	}
	return nil
}

func (g guidance) look(ctx context.Context) (delivery, error) {
	c, err := g.o.daemon.connect()
	if err != nil {
		return delivery{}, err
	}
	return g.delivery(ctx, c)
}

func (g guidance) print(d delivery) error {
	if d.Scope == nil {
		d.Scope = []string{}
	}
	return g.o.print(d, deliveryText(d))
}

func deliveryText(d delivery) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-9s %s\n", name, plaintext.Line(value))
		}
	}
	state := d.State
	if d.Reason != "" {
		state += ": " + d.Reason
	}
	line("state", state)
	line("source", orDash(d.Source))
	line("session", d.SessionID)
	line("scope", strings.Join(d.Scope, ", "))
	line("expires", d.Expires)
	line("revision", d.Revision)
	line("store", d.Store)
	line("problem", d.Why)
	for _, p := range d.Passed {
		line("passed by", p)
	}
	return b.String()
}

// newAuthHeader returns the command that prints the header with a session's token, for
// clients that run a command for their headers. The output is secret. Without a
// session it prints no header, so that only guidance is missing.
func newAuthHeader() *cobra.Command {
	o := newInvocation()
	return o.command("header", "print the header of this caller's session", "doorward auth header", 0, 0,
		func(ctx context.Context, _ []string) error {
			ctx, cancel := context.WithTimeout(ctx, hookTime)
			defer cancel()
			token, err := guidance{o}.headerToken(ctx)
			if err != nil {
				fmt.Fprintf(stderr(), "doorward: no session: %v\n", err)
			}
			header := map[string]string{}
			if token != "" {
				header[protocol.HeaderSession] = token
			}
			return printJSON(header)
		})
}

func (g guidance) headerToken(ctx context.Context) (string, error) {
	token, variable, err := client.TokenFromEnv(lookup)
	if variable != "" {
		return token, err
	}
	k, err := g.keeper(ctx)
	if err != nil {
		return "", err
	}
	f, kept, err := k.ensure(ctx, projectOf("", ""))
	if kept != nil { // the token is returned nevertheless; the session ends with the agent
		fmt.Fprintf(stderr(), "doorward: the session could not be saved in a file: %v\n", kept)
	}
	return f.Token, err
}
