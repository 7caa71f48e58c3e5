package main

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/trust/principal"
)

// newPeers returns the command that lists the registered agents, shows one, or retires a name.
func newPeers() *cobra.Command {
	o := newInvocation()
	o.narrows()
	return o.command("peers [show|retire] [PEER] [--json]", "list, show and retire registered agents", "doorward agent peers", 0, 2,
		func(ctx context.Context, args []string) error { return managePeers(ctx, o, args) })
}

func managePeers(ctx context.Context, o *invocation, rest []string) error {
	switch {
	case len(rest) == 0:
		return listPeers(ctx, o)
	case rest[0] == "show" && len(rest) == 2:
		return showPeer(ctx, o, rest[1])
	case rest[0] == "retire" && len(rest) == 2:
		var p agent.PeerInfo
		if err := o.daemon.mailPost(ctx, "retire", admin.AgentPeer{Peer: rest[1]}, &p); err != nil {
			return err
		}
		return o.print(p, fmt.Sprintf("%s is retired; %d messages waiting for it have expired\n", address(p), p.Pending))
	case len(rest) == 1 && rest[0] != "show" && rest[0] != "retire":
		return showPeer(ctx, o, rest[0])
	}
	return errUsage
}

func listPeers(ctx context.Context, o *invocation) error {
	var all admin.AgentPeers
	if err := o.daemon.mail(ctx, "peers", nil, &all); err != nil {
		return err
	}
	if len(all.Peers) == 0 && !o.json {
		fmt.Fprintln(stderr(), "doorward: no agent is registered")
		return nil
	}
	many := slices.ContainsFunc(all.Peers, func(p agent.PeerInfo) bool { return p.Node != all.Peers[0].Node })
	rows := [][]string{{"PEER", "PRESENCE", "OWNER", "GRADE", "EPOCH", "UNREAD", "HELD", "ID"}}
	for _, p := range all.Peers {
		rows = append(rows, []string{address(p), presenceWord(p), oneWord(ownerOf(p, many)), oneWord(p.Grade),
			fmt.Sprint(p.Epoch), fmt.Sprint(p.Pending), fmt.Sprint(p.Held), oneWord(p.PeerID)})
	}
	return o.print(all.Peers, o.narrowed(table(rows...)))
}

// ownerOf returns the principal of a peer, with its node where there are many: the same user
// of another node is another principal.
func ownerOf(p agent.PeerInfo, many bool) string {
	if many && !strings.HasPrefix(p.Principal, p.Node+"/") {
		return p.Node + "/" + p.Principal
	}
	return p.Principal
}

// presenceWord returns a peer's presence, and "paused" if its mail is held.
func presenceWord(p agent.PeerInfo) string {
	if p.Paused {
		return oneWord(p.Presence) + ",paused"
	}
	return oneWord(p.Presence)
}

func showPeer(ctx context.Context, o *invocation, name string) error {
	var found admin.AgentPeers
	if err := o.daemon.mail(ctx, "peers", url.Values{"peer": {name}}, &found); err != nil {
		return err
	}
	if len(found.Peers) != 1 {
		return fail(exitFailed, "the daemon answered with %d peers", len(found.Peers))
	}
	return o.print(found.Peers[0], peerText(found.Peers[0]))
}

// peerText returns all properties of a peer. Texts that the peer chose are marked as its
// own words.
func peerText(p agent.PeerInfo) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" && value != `""` && value != "-" {
			fmt.Fprintf(&b, "  %-10s %s\n", name, value)
		}
	}
	fmt.Fprintf(&b, "%s\n", address(p))
	line("id", oneWord(p.PeerID))
	line("owner", oneWord(p.Principal))
	line("node", oneWord(p.Node))
	line("grade", oneWord(p.Grade))
	line("epoch", fmt.Sprint(p.Epoch))
	line("presence", presenceWord(p))
	line("last seen", oneWord(p.LastSeen))
	line("lease", oneWord(p.LeaseUntil))
	line("inbound", oneWord(p.Inbound))
	line("wake", oneWord(p.Wake))
	line("spawn", oneWord(p.Spawn))
	line("unread", fmt.Sprint(p.Pending))
	line("held", fmt.Sprint(p.Held))
	said(&b, "display", p.Display)
	said(&b, "summary", p.Summary)
	for _, name := range slices.Sorted(maps.Keys(p.Labels)) {
		said(&b, "label", name+"="+p.Labels[name])
	}
	return b.String()
}

// said writes a text that a peer chose, marked as such; nothing for an empty text.
func said(b *strings.Builder, what, text string) {
	if text == "" {
		return
	}
	fmt.Fprintf(b, "  %s, as claimed by the peer:\n", what)
	block(b, "    ", text)
}

// address returns the name of a peer with its namespace, which is valid from any namespace.
func address(p agent.PeerInfo) string {
	if p.Namespace == "" {
		return oneWord(p.Name)
	}
	return oneWord(p.Name + "@" + p.Namespace)
}

// newTransfer returns the command that moves a name, with its mail, to another principal.
func newTransfer() *cobra.Command {
	o := newInvocation()
	to := o.set.String("to", "", "the principal, of this daemon, such as uid:1000 or token:ci")
	return o.command("transfer PEER --to PRINCIPAL [--json]", "move a name and its mail to another principal",
		"doorward agent transfer reviewer --to uid:1001", 1, 1,
		func(ctx context.Context, args []string) error {
			if *to == "" {
				return errUsage
			}
			if _, _, err := principal.Parse(*to); err != nil {
				return fmt.Errorf("%w: --to takes a principal of this daemon, such as uid:1000 or token:ci; an agent that has moved is transferred at the daemon it moved to", errUsage)
			}
			var p agent.PeerInfo
			if err := o.daemon.mailPost(ctx, "transfer", admin.AgentTransfer{Peer: args[0], To: *to}, &p); err != nil {
				return err
			}
			return o.print(p, fmt.Sprintf("%s belongs to %s now, epoch %d; its %d messages were transferred too\n", address(p), oneWord(p.Principal), p.Epoch, p.Pending+p.Held))
		})
}
