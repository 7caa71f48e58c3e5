package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/messaging/mail"
)

const agentUsage = "agent peers|send|inbox|tail|trace|hold|transfer|fsck|hook [arguments]"

// agentUsages are the commands of the human's side of messaging.
func agentUsages() map[string]string {
	return map[string]string{
		"peers":    "peers [show|retire] [PEER] [--json]",
		"send":     "send PEER [--subject S] [--file F|-] [TEXT…] [--json]",
		"inbox":    "inbox [PEER] [--bodies] [--ack] [--json]",
		"tail":     "tail [--peer PEER] [--json]",
		"trace":    "trace MESSAGE-ID [--json]",
		"hold":     "hold ls | approve|refuse|requeue|purge MESSAGE-ID | pause|resume PEER [--json]",
		"transfer": "transfer PEER --to PRINCIPAL [--json]",
		"fsck":     "fsck [--repair] [--json]",
	}
}

// agentCommand is the human's side of messaging: what agents say to each other
// through the daemon. The daemon refuses it to the shells of agents.
func agentCommand(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	run := map[string]func(*operator, context.Context, []string) error{
		"peers": (*operator).peers, "send": (*operator).send, "inbox": (*operator).inbox, "tail": (*operator).tail,
		"trace": (*operator).trace, "hold": (*operator).hold, "transfer": (*operator).transfer, "fsck": (*operator).fsck,
	}[args[0]]
	if args[0] == "hook" {
		hook(ctx, args[1:])
		return nil
	}
	if run == nil {
		return fmt.Errorf("%w: unknown command %q", errUsage, args[0])
	}
	o := &operator{options: newOptions("agent " + args[0])}
	err := run(o, ctx, args[1:])
	if o.client != nil {
		o.client.Close()
	}
	if errors.Is(err, errUsage) {
		err = fmt.Errorf("%w: doorward agent %s", err, agentUsages()[args[0]])
	}
	return err
}

// operator is one run of an operator's command.
type operator struct {
	*options
	client *client.Client
}

// connect is for what is asked more than once, or at all.
func (o *operator) connect() (err error) {
	if o.client == nil {
		o.client, err = o.dial()
	}
	return err
}

// get looks at something.
func (o *operator) get(ctx context.Context, what string, q url.Values, out any) error {
	if err := o.connect(); err != nil {
		return err
	}
	path := "/admin/v1/agent/" + what
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return agentFailure(o.client.Admin(ctx, path, out))
}

// post does something.
func (o *operator) post(ctx context.Context, what string, in, out any) error {
	if err := o.connect(); err != nil {
		return err
	}
	return agentFailure(o.client.AdminPost(ctx, "/admin/v1/agent/"+what, in, out))
}

// print gives data to a program as JSON, to a person as text.
func (o *operator) print(v any, text string) error {
	if o.json {
		var err error
		if text, err = plainJSON(v); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(stdout(), text)
	return err
}

// agentFailure says what a refusal means, and what to do about it.
func agentFailure(err error) error {
	var e *client.AdminError
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case e.Code == "AGENT_SHELL":
		return shellFailure(e.Why)
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

// shellFailure is the refusal of an operator's act whose caller is below a
// registered agent, or may be.
func shellFailure(why string) error {
	if why == admin.WhyUnknown {
		return fail(exitRefused, "refused (AGENT_SHELL): the processes above this command cannot be read to the first one, so an agent may be among them; "+
			"run it in a terminal of the machine that the daemon runs on, with /proc readable, through its Unix socket")
	}
	return fail(exitRefused, "refused (AGENT_SHELL): this command runs below a registered agent, and an agent must not speak as you; "+
		"run it in a terminal that no agent has opened")
}

// mailFailures are the codes that an operator meets, in words.
func mailFailures() map[string]string {
	return map[string]string{
		mail.UnknownRecipient:    "there is no such peer: `doorward agent peers` lists them",
		mail.UnknownMessage:      "there is no such message, or it is in no state for that",
		mail.InvalidArgument:     "the daemon does not take that argument",
		mail.RecipientRefuses:    "the peer takes no messages",
		mail.MailboxFull:         "the mailbox is full: nothing was stored",
		mail.SenderQuota:         "too many of your messages wait there already: nothing was stored",
		mail.DuplicateSuppressed: "the same text went to this peer a moment ago: nothing was stored",
		mail.NameOwned:           "the name belongs to somebody else",
		mail.NameInUse:           "the name is in use by a session that lives",
		mail.NameInvalid:         "that is not a name that a peer can have",
		mail.NameReserved:        "the name is reserved",
		mail.StoreUnavailable:    "the store does not answer: nothing was done",
		mail.AuditUnavailable:    "the audit log cannot be written: nothing was done",
		"TOO_LARGE":              "the text is too long: see agent.message_bytes",
		"INVALID_BODY":           "the text is empty, or no UTF-8",
		"RATE_LIMITED":           "too many at once: try again in a moment",
	}
}

// one takes exactly one argument.
func one(rest []string) (string, error) {
	if len(rest) != 1 || rest[0] == "" {
		return "", errUsage
	}
	return rest[0], nil
}

// asText puts command line words together as they were separated.
func asText(words []string) string { return strings.Join(words, " ") }
