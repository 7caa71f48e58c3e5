package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/messaging/mail"
)

// newSend returns the command that sends a message to a peer with the operator's
// authority. Words after -- are text, not flags.
func newSend() *cobra.Command {
	o := newInvocation()
	subject := o.set.String("subject", "", "subject line")
	file := o.set.String("file", "", "read the text from a file; -: from stdin")
	reply := o.set.String("reply-to", "", "id of the message that this one answers")
	ttl := o.set.Duration("ttl", 0, "how long the message may wait for delivery, from 1m to 168h; 0: agent.ttl of the configuration")
	return o.command("send PEER [--subject S] [--file F|-] [TEXT…] [--json]", "write to a peer", "doorward agent send reviewer 'All tests pass.'", 1, many,
		func(ctx context.Context, args []string) error {
			body, err := messageText(*file, args[1:])
			if err != nil {
				return err
			}
			d := agent.OperatorDraft{To: args[0], Subject: *subject, Body: body, ReplyTo: *reply, TTL: int64(ttl.Seconds())}
			var sent agent.OperatorSent
			if err := o.daemon.mailPost(ctx, "send", d, &sent); err != nil {
				return err
			}
			return o.print(sent, sentText(sent))
		})
}

// maxText is the most bytes of a text that are read. The daemon's limit is lower, and the
// daemon reports when it is exceeded.
const maxText = 1 << 20

// messageText returns the text of a message: the words, or the content of the file.
func messageText(file string, words []string) (string, error) {
	if (file != "") == (len(words) > 0) {
		return "", fmt.Errorf("%w: give either the text or --file", errUsage)
	}
	if file == "" {
		return strings.Join(words, " "), nil
	}
	in := io.Reader(os.Stdin)
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxText+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("reading the text: %w", err)
	case len(b) > maxText:
		return "", fail(exitFailed, "the text exceeds the maximum message size")
	case !utf8.Valid(b): // encoding as JSON would change it silently
		return "", fail(exitFailed, "the text is not UTF-8")
	}
	return string(b), nil
}

// sentText returns the text about a sent message. It does not claim that the message was
// received, which is not known yet.
func sentText(s agent.OperatorSent) string {
	what := "stored for"
	if s.State == mail.Held {
		what = "held for"
	}
	text := fmt.Sprintf("%s: %s %s (%s, wake: %s); not delivered yet\n", oneWord(s.MessageID), what, oneWord(s.To), oneWord(s.Presence), oneWord(s.Wake))
	if s.Cleaned > 0 {
		text += fmt.Sprintf("  %d hidden or control characters were removed\n", s.Cleaned)
	}
	return text
}

// newInbox returns the command that shows the messages that wait for the operator, or for
// a peer, without their texts unless requested.
func newInbox() *cobra.Command {
	o := newInvocation()
	bodies := o.set.Bool("bodies", false, "with PEER: show the texts too, which is recorded as a separate act")
	ack := o.set.Bool("ack", false, "without PEER: confirm the messages shown")
	return o.command("inbox [PEER] [--bodies] [--ack] [--json]", "show waiting messages", "doorward agent inbox --ack", 0, 1,
		func(ctx context.Context, args []string) (err error) {
			var in agent.Inbox
			q := url.Values{}
			if len(args) == 0 || *bodies {
				q.Set("bodies", "true")
			}
			if len(args) == 1 {
				q.Set("peer", args[0])
			}
			switch {
			case *ack && len(args) == 1:
				return errUsage
			case *ack:
				err = o.daemon.mailPost(ctx, "inbox", admin.AgentInbox{Ack: true}, &in)
			default:
				err = o.daemon.mail(ctx, "inbox", q, &in)
			}
			if err != nil {
				return err
			}
			return o.print(in, inboxText(in))
		})
}

func inboxText(in agent.Inbox) string {
	var b strings.Builder
	for _, m := range in.Messages {
		writeMessage(&b, m)
	}
	for _, n := range in.Notices {
		fmt.Fprintf(&b, "notice: %s to %s: %s %s\n", oneWord(n.MessageID), oneWord(n.To), oneWord(n.State), oneWord(n.Reason))
		said(&b, "note", n.Note)
	}
	fmt.Fprintf(&b, "%d unread, %d held\n", in.Pending, in.Held)
	return b.String()
}

// writeMessage writes one message with all its properties.
func writeMessage(b *strings.Builder, m agent.Message) {
	fmt.Fprintf(b, "%s  %s  %s -> %s  %s  %d bytes  %s\n", oneWord(m.MessageID), oneWord(m.SentAt), oneWord(m.From.Address()), oneWord(m.To), oneWord(m.Kind), m.BodyBytes, oneWord(m.State))
	fmt.Fprintf(b, "  from %s, %s, lineage %s, authority %s, signature %s\n", oneWord(m.From.Principal), oneWord(m.From.Grade), oneWord(m.From.Lineage), oneWord(m.Authority), oneWord(m.Signature))
	if m.Reason != "" {
		fmt.Fprintf(b, "  reason %s\n", oneWord(m.Reason))
	}
	said(b, "subject", m.Subject)
	if m.Body != "" {
		block(b, "  ", m.Body)
	}
	said(b, "note", m.Note)
}

// newTail returns the command that shows state changes as they happen, until it or the
// daemon is stopped.
func newTail() *cobra.Command {
	o := newInvocation()
	peer := o.set.String("peer", "", "only changes of this peer")
	return o.command("tail [--peer PEER] [--json]", "follow the state changes of messages", "doorward agent tail --peer reviewer", 0, 0,
		func(ctx context.Context, _ []string) error { return followMail(ctx, o, *peer) })
}

func followMail(ctx context.Context, o *invocation, peer string) error {
	conn, err := o.daemon.connect()
	if err != nil {
		return err
	}
	path := pathAgent + "tail"
	if peer != "" {
		path += "?" + url.Values{"peer": {peer}}.Encode()
	}
	err = conn.AdminStream(ctx, path, func(data []byte) error {
		var c mail.Change
		if err := json.Unmarshal(data, &c); err != nil {
			return fmt.Errorf("reading the daemon's answer: %w", err)
		}
		return o.print(c, changeText(c))
	})
	switch {
	case ctx.Err() != nil:
		return nil
	case err == nil:
		return fail(exitAway, "the daemon closed the connection")
	}
	return agentFailure(err)
}

func changeText(c mail.Change) string {
	before := c.Before
	if before == "" {
		before = "accepted"
	}
	text := fmt.Sprintf("%s  %s  %s -> %s  %s -> %s", moment(c.At), oneWord(c.MessageID), oneWord(c.From), oneWord(c.To), oneWord(before), oneWord(c.After))
	if c.Reason != "" {
		text += "  " + oneWord(c.Reason)
	}
	return text + "\n"
}

// newTrace returns the command that shows the history of a message.
func newTrace() *cobra.Command {
	o := newInvocation()
	return o.command("trace MESSAGE-ID [--json]", "show the history of a message", "doorward agent trace 01ARZ3NDEKTSV4RRFFQ69G5FAV", 1, 1,
		func(ctx context.Context, args []string) error {
			var t agent.Traced
			if err := o.daemon.mail(ctx, "trace", url.Values{"message_id": args}, &t); err != nil {
				return err
			}
			return o.print(t, traceText(t))
		})
}

func traceText(t agent.Traced) string {
	var b strings.Builder
	for _, m := range t.Messages {
		writeMessage(&b, m)
	}
	for _, c := range t.Changes {
		b.WriteString(changeText(c))
	}
	for _, seq := range t.Audit {
		fmt.Fprintf(&b, "audit record %d\n", seq)
	}
	return b.String()
}
