package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/messaging/agent"
)

// hook runs the command that tells a client, at one of its events, how many
// messages wait for its agent. It never fails, because some clients refuse the prompt or
// the end of a turn on an exit status other than 0. It prints no error if there is no
// daemon, or if policy gives the caller no mailbox.
func hook(run func() error) {
	defer func() {
		if r := recover(); r != nil { // otherwise the runtime exits with 2, on which clients refuse
			fmt.Fprintln(stderr(), "doorward: the hook failed")
		}
	}()
	err := run()
	if err != nil && !errors.Is(err, client.ErrNoDaemon) && !errors.Is(err, client.ErrStatus(http.StatusForbidden)) {
		fmt.Fprintf(stderr(), "doorward: unread mail could not be looked up: %v\n", err)
	}
}

// hookEvents returns the events with the names that clients may give them; the
// first name is used when the client gives none of these.
func hookEvents() map[string][]string {
	return map[string][]string{
		"session-start":      {"SessionStart"},
		"user-prompt-submit": {"UserPromptSubmit", "BeforeAgent"},
		"post-tool-use":      {"PostToolUse", "AfterTool", "PostToolUseFailure"},
		"stop":               {"Stop", "AfterAgent", "SubagentStop"},
	}
}

func newHook() *cobra.Command {
	o := newInvocation()
	c := o.command("hook session-start|user-prompt-submit|post-tool-use|stop [--json]", "tell a client about unread mail, from one of its hooks",
		"doorward agent hook session-start", 0, many,
		func(ctx context.Context, args []string) error {
			hook(func() error { return tellMail(ctx, o, args) })
			return nil
		})
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		hook(func() error { return err })
		return nil
	})
	return c
}

func tellMail(ctx context.Context, o *invocation, rest []string) error {
	if len(rest) != 1 || hookEvents()[rest[0]] == nil {
		return errors.New("usage: doorward agent hook session-start|user-prompt-submit|post-tool-use|stop [--json]")
	}
	ctx, cancel := context.WithTimeout(ctx, hookTime)
	defer cancel()
	event := eventName(ctx, os.Stdin, rest[0])
	var counts agent.HookCounts
	if err := o.daemon.tell(ctx, "/agent/v1/hook", struct{}{}, &counts); err != nil {
		return err
	}
	if !counts.Known || !counts.Tell || counts.Unread <= 0 {
		return nil
	}
	_, err := fmt.Fprintln(stdout(), hookText(rest[0], event, o.json, counts))
	return err
}

// eventName returns the client's name of the event if it is one of hookEvents, and
// otherwise the first of these. It does not wait for input without an end.
func eventName(ctx context.Context, in io.Reader, event string) string {
	names := hookEvents()[event]
	if name := readHook(ctx, in).Name; slices.Contains(names, name) {
		return name
	}
	return names[0]
}

// hookText returns one line in the form that the event requires. Clients put plain text
// of the first two events into the model's context, and that of a tool use only from
// JSON. The text of a stop is shown to the user instead. The output never asks a client
// to refuse or to continue.
func hookText(event, name string, inJSON bool, c agent.HookCounts) string {
	messages := "messages"
	if c.Unread == 1 {
		messages = "message"
	}
	text := fmt.Sprintf("%d unread %s, newest %d. Call agent__inbox.", c.Unread, messages, c.Newest)
	var out any
	switch {
	case event == "stop":
		out = map[string]string{"systemMessage": text}
	case event == "post-tool-use" || inJSON:
		out = map[string]any{"hookSpecificOutput": map[string]string{"hookEventName": name, "additionalContext": text}}
	default:
		return text
	}
	b, err := json.Marshal(out)
	if err != nil {
		return text
	}
	return string(b)
}
