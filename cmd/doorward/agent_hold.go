package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/messaging/agent"
)

// newHold returns the command that decides about held messages, and pauses a peer.
func newHold() *cobra.Command {
	o := newInvocation()
	return o.command("hold ls | approve|refuse|requeue|purge MESSAGE-ID | pause|resume PEER [--json]", "decide on messages that are held",
		"doorward agent hold ls", 1, 2,
		func(ctx context.Context, args []string) error { return decideHeld(ctx, o, args) })
}

func decideHeld(ctx context.Context, o *invocation, rest []string) error {
	switch {
	case len(rest) == 1 && rest[0] == "ls":
		return listHeld(ctx, o)
	case len(rest) != 2:
		return errUsage
	}
	switch what := rest[0]; what {
	case agent.HoldApprove, agent.HoldRefuse, agent.HoldRequeue, agent.HoldPurge:
		return settleHeld(ctx, o, what, rest[1])
	case "pause", "resume":
		return pausePeer(ctx, o, rest[1], what == "pause")
	}
	return errUsage
}

func listHeld(ctx context.Context, o *invocation) error {
	var held admin.AgentHolds
	if err := o.daemon.mail(ctx, "hold", nil, &held); err != nil {
		return err
	}
	var b strings.Builder
	for _, m := range held.Messages {
		writeMessage(&b, m)
	}
	if len(held.Messages) == 0 && !o.json {
		fmt.Fprintln(stderr(), "doorward: nothing is held")
	}
	return o.print(held.Messages, b.String())
}

func settleHeld(ctx context.Context, o *invocation, what, id string) error {
	var done admin.AgentSettled
	if err := o.daemon.mailPost(ctx, "hold", admin.AgentHold{Do: what, MessageID: id}, &done); err != nil {
		return errors.Join(err, openDecisions(ctx, o, err))
	}
	var b strings.Builder
	for _, s := range done.Settled {
		fmt.Fprintf(&b, "%s: %s", oneWord(s.MessageID), oneWord(s.State))
		if s.NewID != "" {
			fmt.Fprintf(&b, ", sent again as %s", oneWord(s.NewID))
		}
		b.WriteString("\n")
	}
	return o.print(done.Settled, b.String())
}

func pausePeer(ctx context.Context, o *invocation, peer string, on bool) error {
	var p agent.PeerInfo
	if err := o.daemon.mailPost(ctx, "pause", admin.AgentPause{Peer: peer, Paused: on}, &p); err != nil {
		return err
	}
	text := "%s is paused: new messages to it are held\n"
	if !on {
		text = "%s is no longer paused; messages still held for it: " + strconv.Itoa(p.Held) + "\n"
	}
	return o.print(p, fmt.Sprintf(text, address(p)))
}

// newFsck returns the command that checks that no message was lost or invented.
func newFsck() *cobra.Command {
	o := newInvocation()
	repair := o.set.Bool("repair", false, "repair counters and states that can be computed from the rows")
	return o.command("fsck [--repair] [--json]", "check the mailboxes against the audit record for lost messages", "doorward agent fsck", 0, 0,
		func(ctx context.Context, _ []string) error { return checkMail(ctx, o, *repair) })
}

func checkMail(ctx context.Context, o *invocation, repair bool) (err error) {
	var c agent.Checked
	if repair {
		err = o.daemon.mailPost(ctx, "fsck", admin.AgentFsck{Repair: true}, &c)
	} else {
		err = o.daemon.mail(ctx, "fsck", nil, &c)
	}
	if err != nil {
		return err
	}
	if err := o.print(c, checkText(c)); err != nil {
		return err
	}
	if !c.OK || len(c.Unrecorded) > 0 {
		return &failure{status: exitFailed, err: fmt.Errorf("the mailboxes are inconsistent in %d places", len(c.Problems)+len(c.Unrecorded)), quiet: o.json}
	}
	return nil
}

func checkText(c agent.Checked) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d peers, %d accepted:", c.Peers, c.Accepted)
	for _, state := range slices.Sorted(maps.Keys(c.States)) {
		fmt.Fprintf(&b, " %s %d", oneWord(state), c.States[state])
	}
	b.WriteString("\n")
	for _, p := range c.Problems {
		fmt.Fprintf(&b, "problem: %s", quoted(p.Problem))
		if p.PeerID != "" {
			fmt.Fprintf(&b, ", peer %s", oneWord(p.PeerID))
		}
		if p.Message != "" {
			fmt.Fprintf(&b, ", message %s", oneWord(p.Message))
		}
		b.WriteString("\n")
	}
	for _, id := range c.Unrecorded {
		fmt.Fprintf(&b, "problem: message %s has no audit record\n", oneWord(id))
	}
	for _, id := range c.Unstored {
		fmt.Fprintf(&b, "recorded but not stored: %s; its sender got no answer\n", oneWord(id))
	}
	if c.Repaired > 0 {
		fmt.Fprintf(&b, "%d repaired\n", c.Repaired)
	}
	if c.OK && len(c.Unrecorded) == 0 {
		b.WriteString("ok\n")
	}
	return b.String()
}
