package main

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/messaging/agent"
)

// peers lists who is registered, shows one, or takes a name out of use.
func (o *operator) peers(ctx context.Context, args []string) error {
	rest, err := o.parse(args)
	if err != nil {
		return err
	}
	switch {
	case len(rest) == 0:
		return o.listPeers(ctx)
	case rest[0] == "show" && len(rest) == 2:
		return o.showPeer(ctx, rest[1])
	case rest[0] == "retire" && len(rest) == 2:
		var p agent.PeerInfo
		if err := o.post(ctx, "retire", admin.AgentPeer{Peer: rest[1]}, &p); err != nil {
			return err
		}
		return o.print(p, fmt.Sprintf("%s is retired; %d messages that waited for it have expired\n", address(p), p.Pending))
	case len(rest) == 1 && rest[0] != "show" && rest[0] != "retire":
		return o.showPeer(ctx, rest[0])
	}
	return errUsage
}

func (o *operator) listPeers(ctx context.Context) error {
	var all admin.AgentPeers
	if err := o.get(ctx, "peers", nil, &all); err != nil {
		return err
	}
	if o.json {
		return o.print(all.Peers, "")
	}
	if len(all.Peers) == 0 {
		fmt.Fprintln(stderr(), "doorward: no agent is registered")
		return nil
	}
	w := tabwriter.NewWriter(stdout(), 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "PEER\tPRESENCE\tOWNER\tGRADE\tEPOCH\tUNREAD\tHELD\tID")
	for _, p := range all.Peers {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", address(p), oneWord(p.Presence), oneWord(p.Principal), oneWord(p.Grade), p.Epoch, p.Pending, p.Held, oneWord(p.PeerID))
	}
	return w.Flush()
}

func (o *operator) showPeer(ctx context.Context, name string) error {
	var found admin.AgentPeers
	if err := o.get(ctx, "peers", url.Values{"peer": {name}}, &found); err != nil {
		return err
	}
	if len(found.Peers) != 1 {
		return fail(exitFailed, "the daemon answered with %d peers", len(found.Peers))
	}
	return o.print(found.Peers[0], peerText(found.Peers[0]))
}

// peerText is all that is known of a peer. Its own words are printed in quotes.
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
	line("presence", oneWord(p.Presence))
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

// said is what a peer says of itself.
func said(b *strings.Builder, what, text string) {
	if text == "" {
		return
	}
	fmt.Fprintf(b, "  %s, as it says:\n", what)
	block(b, "    ", text)
}

// address is how a peer is written to from anywhere.
func address(p agent.PeerInfo) string {
	if p.Namespace == "" {
		return oneWord(p.Name)
	}
	return oneWord(p.Name + "@" + p.Namespace)
}

// transfer moves a name, with its mail, to another principal.
func (o *operator) transfer(ctx context.Context, args []string) error {
	to := o.set.String("to", "", "the principal, such as uid:1000")
	rest, err := o.parse(args)
	if err != nil {
		return err
	}
	name, err := one(rest)
	if err != nil || *to == "" {
		return errUsage
	}
	var p agent.PeerInfo
	if err := o.post(ctx, "transfer", admin.AgentTransfer{Peer: name, To: *to}, &p); err != nil {
		return err
	}
	return o.print(p, fmt.Sprintf("%s belongs to %s now, epoch %d; its %d messages went with it\n", address(p), oneWord(p.Principal), p.Epoch, p.Pending))
}
