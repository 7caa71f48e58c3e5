package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/messaging/mail"
)

// errPasskey is the refusal of an approval on the command line that needs a passkey.
var errPasskey = errors.New("refused: this needs a passkey (approvals.presence), which only the console can ask for: use its page Decisions")

// pathAgent is the path of the operator's messaging resources in the local API.
const pathAgent = "/admin/v1/agent/"

// mail reads a resource of messaging.
func (l *daemonLink) mail(ctx context.Context, what string, q url.Values, out any) error {
	path := pathAgent + what
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return agentFailure(l.ask(ctx, path, out))
}

// mailPost performs an act of messaging.
func (l *daemonLink) mailPost(ctx context.Context, what string, in, out any) error {
	return agentFailure(l.tell(ctx, pathAgent+what, in, out))
}

// agentFailure turns a failure of messaging into an error that explains it and gives a remedy.
func agentFailure(err error) error {
	var e *client.AdminError
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case e.Code == "AGENT_SHELL":
		return shellFailure(e.Why)
	case e.Code == mail.PasskeyRequired:
		return fail(exitRefused, "%w", errPasskey)
	case e.Status == http.StatusForbidden:
		return fail(exitRefused, "refused: this is for administrators (audit record %d)", e.Ref)
	case e.Status == http.StatusNotFound && e.Code == "":
		return fail(exitFailed, "this daemon has no messaging: it is older than this command, or agent.enabled is false")
	case e.Code == "":
		return fail(exitFailed, "%w", err)
	}
	if text := mailFailures()[e.Code]; text != "" {
		return fail(exitFailed, "%s (%s)", text, e.Code)
	}
	return fail(exitFailed, "%w", err)
}

// shellFailure returns the error for an operator's act that was refused because its caller
// is, or may be, below a registered agent.
func shellFailure(why string) error {
	if why == admin.WhyUnknown {
		return fail(exitRefused, "refused (AGENT_SHELL): not all processes above this command can be read, so an agent may be among them; "+
			"run it in a terminal of the machine that the daemon runs on, with /proc readable, through its Unix socket")
	}
	if why == admin.WhyOrphan {
		return fail(exitRefused, "refused (AGENT_SHELL): a process above this command may be an orphan of a program that speaks MCP, or may have been started at its request; "+
			"use a terminal that was open before those programs started, or log in again")
	}
	return fail(exitRefused, "refused (AGENT_SHELL): this command was started by a registered agent, which may not act as the operator; "+
		"run it in a terminal that no agent has opened")
}

// mailFailures returns the explanations of the codes of messaging.
func mailFailures() map[string]string {
	return map[string]string{
		mail.UnknownRecipient:    "there is no such peer: `doorward agent peers` lists them",
		mail.UnknownMessage:      "there is no such message, or its state does not permit this",
		mail.InvalidArgument:     "the daemon does not accept that argument",
		mail.RecipientRefuses:    "the peer accepts no messages",
		mail.MailboxFull:         "the mailbox is full: nothing was stored",
		mail.SenderQuota:         "too many of your messages are already waiting there: nothing was stored",
		mail.DuplicateSuppressed: "the same text was sent to this peer a moment ago: nothing was stored",
		mail.NameOwned:           "the name belongs to another principal",
		mail.NameInUse:           "the name is in use by a live session",
		mail.NameInvalid:         "the name is not valid for a peer",
		mail.NameReserved:        "the name is reserved",
		mail.StoreUnavailable:    "the store does not answer: nothing was done; `doorward status` says why",
		mail.AuditUnavailable:    "the audit log cannot be written: nothing was done",
		"TOO_LARGE":              "the text is too long: see agent.message_bytes",
		"INVALID_BODY":           "the text is empty or not UTF-8",
		"RATE_LIMITED":           "too many at once: try again in a moment",
	}
}
