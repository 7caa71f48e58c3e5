package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/policy"
)

type peerOut struct {
	PeerID    string `json:"peer_id"`
	Name      string `json:"name"`
	Display   string `json:"display,omitempty"`
	Summary   string `json:"summary,omitempty"`
	Namespace string `json:"namespace"`
	Presence  string `json:"presence"`
	Lineage   string `json:"lineage"`
	Sendable  bool   `json:"sendable"`
	Inbound   string `json:"inbound"`
	Grade     string `json:"grade"`
	LastSeenS int64  `json:"last_seen_s"`
	Wake      string `json:"wake"`
}

type peersOut struct {
	Peers []peerOut `json:"peers"`
	Next  string    `json:"next_page_token,omitempty"`
}

// peersPage is how many rows are read at once; the peers that policy does not show are
// removed afterwards.
const peersPage = 200

// listPeers lists the peers that the caller may see. The token of a page is the id of the
// last peer of the page before.
func listPeers(ctx context.Context, c *call) (*answer, error) {
	me, err := c.me(ctx)
	if err != nil {
		return nil, err
	}
	after, most, wanted := c.args.str("page_token", ""), c.args.int("limit", 50), c.args.strs("presence")
	if after != "" && len(after) != idLength {
		return nil, refusef(mail.InvalidArgument, "page_token is not one of an answer")
	}
	out := peersOut{Peers: []peerOut{}}
	for from := after; out.Next == ""; {
		page, err := c.s.o.Book.Peers(ctx, me, c.args.str("namespace", ""), from, peersPage)
		if err != nil {
			return nil, err
		}
		for _, p := range page {
			from = p.ID
			if len(wanted) > 0 && !slices.Contains(wanted, c.s.standingOf(p.ID, p.Live).presence) || !c.addressing.sees(&addressee{peer: p, me: me}) {
				continue
			}
			if len(out.Peers) == most {
				out.Next = out.Peers[most-1].PeerID
				break
			}
			out.Peers = append(out.Peers, c.addressing.peerOut(me, p))
		}
		if len(page) < peersPage {
			break
		}
	}
	if err := c.write(number("listed", int64(len(out.Peers)))); err != nil {
		return nil, err
	}
	return &answer{text: peersText(me, out), out: out}, nil
}

func (c addressing) peerOut(me, p mail.Peer) peerOut {
	to := &addressee{peer: p, me: me}
	at := c.s.standingOf(p.ID, p.Live)
	out := peerOut{PeerID: p.ID, Name: p.Name, Display: broken(p.Display), Summary: broken(p.Summary), Namespace: p.Namespace,
		Presence: at.presence, Lineage: p.Lineage, Grade: p.Grade, Wake: at.wake}
	out.LastSeenS = max(0, int64(time.Since(time.UnixMilli(p.LastSeen)).Seconds()))
	out.Inbound = inboundOf(p, c.ask(policy.AgentDeliver, to).Allow)
	out.Sendable = out.Inbound != mail.InboundRefuse && c.ask(policy.AgentSend, to).Allow
	return out
}

// inboundOf returns what happens to a message that policy permits: the recipient can only
// be stricter than policy.
func inboundOf(p mail.Peer, deliver bool) string {
	switch {
	case p.Inbound == mail.InboundRefuse:
		return mail.InboundRefuse
	case p.Inbound == mail.InboundHold || p.Paused || !deliver:
		return mail.InboundHold
	}
	return mail.InboundAccept
}

func peersText(me mail.Peer, out peersOut) string {
	f := newFence()
	f.say(fmt.Sprintf("%d agents that you may know of.", len(out.Peers)))
	f.open("list")
	for _, p := range out.Peers {
		f.say(fmt.Sprintf("%s %s (%s, %s, inbound %s, sendable %t, wake %s)", token(addressOf(p.Name, p.Namespace, me.Namespace)),
			p.PeerID, p.Presence, p.Lineage, p.Inbound, p.Sendable, p.Wake))
		f.labelled("display", p.Display)
		f.labelled("summary", p.Summary)
	}
	f.close("list")
	if out.Next != "" {
		f.say("There are more: page_token=" + token(out.Next))
	}
	return f.String()
}

// sees reports whether policy lets the caller see a peer.
func (c addressing) sees(to *addressee) bool { return c.ask(policy.AgentSee, to).Allow }

// maxSuggestions is the number of suggested names for an unknown one.
const maxSuggestions = 3

// suggestions returns names of visible peers that resemble an unknown address. They never
// reveal a peer that the caller may not see.
func (c addressing) suggestions(ctx context.Context, me mail.Peer, address string) []string {
	type guess struct {
		name     string
		distance int
	}
	wanted, _, _ := strings.Cut(address, "@")
	var all []guess
	peers, err := c.s.o.Book.Peers(ctx, me, me.Namespace, "", 256)
	if err != nil {
		return nil
	}
	for _, p := range peers {
		if d := distance(wanted, p.Name); d <= 1+len(wanted)/3 && p.ID != me.ID && c.sees(&addressee{peer: p, me: me}) {
			all = append(all, guess{p.Name, d})
		}
	}
	slices.SortFunc(all, func(a, b guess) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.name, b.name))
	})
	var out []string
	for _, g := range all[:min(len(all), maxSuggestions)] {
		out = append(out, g.name)
	}
	return out
}
