package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/messaging/mail"
)

// send writes to a peer with the operator's authority.
func (o *operator) send(ctx context.Context, args []string) error {
	subject := o.set.String("subject", "", "a line in front")
	file := o.set.String("file", "", "read the text from a file; -: from stdin")
	reply := o.set.String("reply-to", "", "the id of the message that this answers")
	ttl := o.set.Duration("ttl", 0, "how long it may wait; 0: a day")
	words := []string{}
	if i := slices.Index(args, "--"); i >= 0 { // what follows is text, whatever it looks like
		args, words = args[:i], args[i+1:]
	}
	rest, err := o.parse(args)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		return errUsage
	}
	body, err := messageText(*file, append(rest[1:], words...))
	if err != nil {
		return err
	}
	d := agent.OperatorDraft{To: rest[0], Subject: *subject, Body: body, ReplyTo: *reply, TTL: int64(ttl.Seconds())}
	var sent agent.OperatorSent
	if err := o.post(ctx, "send", d, &sent); err != nil {
		return err
	}
	return o.print(sent, sentText(sent))
}

// maxText is the most that a message is read to; the daemon's limit is lower,
// and says so itself.
const maxText = 1 << 20

// messageText is the text of a message: words, or a file.
func messageText(file string, words []string) (string, error) {
	if (file != "") == (len(words) > 0) {
		return "", fmt.Errorf("%w: give either the text or --file", errUsage)
	}
	if file == "" {
		return asText(words), nil
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
		return "", fail(exitFailed, "the text is longer than any message may be")
	case !utf8.Valid(b): // JSON would change it silently
		return "", fail(exitFailed, "the text is not UTF-8")
	}
	return string(b), nil
}

// sentText does not claim that a message was received: that is not known yet.
func sentText(s agent.OperatorSent) string {
	what := "stored for"
	if s.State == mail.Held {
		what = "held for"
	}
	text := fmt.Sprintf("%s: %s %s (%s, wake: %s); not delivered yet\n", oneWord(s.MessageID), what, oneWord(s.To), oneWord(s.Presence), oneWord(s.Wake))
	if s.Cleaned > 0 {
		text += fmt.Sprintf("  %d hidden or control characters were taken out\n", s.Cleaned)
	}
	return text
}

// inbox shows what waits for the operator, or, without the texts, for a peer.
func (o *operator) inbox(ctx context.Context, args []string) error {
	bodies := o.set.Bool("bodies", false, "of a peer: the texts too, which is recorded as an act of its own")
	ack := o.set.Bool("ack", false, "of your own: confirm what is shown")
	rest, err := o.parse(args)
	if err != nil {
		return err
	}
	if len(rest) > 1 || len(rest) == 1 && *ack {
		return errUsage
	}
	var in agent.Inbox
	switch {
	case *ack:
		err = o.post(ctx, "inbox", admin.AgentInbox{Ack: true}, &in)
	case len(rest) == 0:
		err = o.get(ctx, "inbox", url.Values{"bodies": {"true"}}, &in)
	case *bodies:
		err = o.get(ctx, "inbox", url.Values{"peer": {rest[0]}, "bodies": {"true"}}, &in)
	default:
		err = o.get(ctx, "inbox", url.Values{"peer": {rest[0]}}, &in)
	}
	if err != nil {
		return err
	}
	return o.print(in, inboxText(in))
}

func inboxText(in agent.Inbox) string {
	var b strings.Builder
	for _, m := range in.Messages {
		letter(&b, m)
	}
	for _, n := range in.Notices {
		fmt.Fprintf(&b, "notice: %s to %s: %s %s\n", oneWord(n.MessageID), oneWord(n.To), oneWord(n.State), oneWord(n.Reason))
		said(&b, "note", n.Note)
	}
	fmt.Fprintf(&b, "%d unread, %d held\n", in.Pending, in.Held)
	return b.String()
}

// letter is one message with all that is known of it.
func letter(b *strings.Builder, m agent.Letter) {
	fmt.Fprintf(b, "%s  %s  %s -> %s  %s  %d bytes  %s\n", oneWord(m.MessageID), oneWord(m.SentAt), sender(m.From), oneWord(m.To), oneWord(m.Kind), m.BodyBytes, oneWord(m.State))
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

func sender(s agent.Sender) string {
	if s.Namespace == "" {
		return oneWord(s.Name)
	}
	return oneWord(s.Name + "@" + s.Namespace)
}

// tail shows state changes as they happen, until it is stopped or the daemon
// is.
func (o *operator) tail(ctx context.Context, args []string) error {
	peer := o.set.String("peer", "", "of one peer only")
	rest, err := o.parse(args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return errUsage
	}
	if err := o.connect(); err != nil {
		return err
	}
	path := "/admin/v1/agent/tail"
	if *peer != "" {
		path += "?" + url.Values{"peer": {*peer}}.Encode()
	}
	err = o.client.AdminStream(ctx, path, func(data []byte) error {
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
		return fail(exitAway, "the daemon has gone")
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

// trace shows all that happened to a message.
func (o *operator) trace(ctx context.Context, args []string) error {
	rest, err := o.parse(args)
	if err != nil {
		return err
	}
	id, err := one(rest)
	if err != nil {
		return err
	}
	var t agent.Traced
	if err := o.get(ctx, "trace", url.Values{"message_id": {id}}, &t); err != nil {
		return err
	}
	return o.print(t, traceText(t))
}

func traceText(t agent.Traced) string {
	var b strings.Builder
	for _, m := range t.Letters {
		letter(&b, m)
	}
	for _, c := range t.Changes {
		b.WriteString(changeText(c))
	}
	for _, seq := range t.Audit {
		fmt.Fprintf(&b, "audit record %d\n", seq)
	}
	return b.String()
}
