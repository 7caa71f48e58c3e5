package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/principal"
)

func (s *Server) peerInfo(p mail.Peer) PeerInfo {
	at := s.standingOf(p.ID, p.Live)
	return PeerInfo{PeerID: p.ID, Name: p.Name, Namespace: p.Namespace, Principal: shortPrincipal(p.Principal, s.o.Node), Node: nodeOf(p.Principal), Grade: p.Grade,
		Epoch: p.Epoch, Presence: at.presence, Paused: p.Paused, LastSeen: stampOr(p.LastSeen), LeaseUntil: stampOr(p.LeaseUntil),
		Display: p.Display, Summary: p.Summary, Inbound: p.Inbound, Labels: p.Labels, Spawn: p.Spawn, Ancestors: p.Ancestors,
		Wake: at.wake, Pending: p.Pending, Held: p.Held}
}

// nodeOf returns the node of a qualified principal.
func nodeOf(qualified string) string {
	node, _, _ := strings.Cut(qualified, " ")
	return node
}

// Peers lists all peers of all namespaces.
func (o *Operator) Peers(ctx context.Context, by Caller) ([]PeerInfo, error) {
	a, err := o.enter(ctx, by, "peers")
	if err != nil {
		return nil, err
	}
	out := []PeerInfo{}
	if err := o.s.trail.eachPeer(ctx, func(p mail.Peer) { out = append(out, o.s.peerInfo(p)) }); err != nil {
		return nil, a.fail(err)
	}
	return out, a.listed(by, number("listed", int64(len(out))))
}

// Show returns one peer, by id, name, name@namespace or parent/child.
func (o *Operator) Show(ctx context.Context, by Caller, peer string) (*PeerInfo, error) {
	a, p, err := o.find(ctx, by, "peers", peer)
	if err != nil {
		return nil, err
	}
	info := o.s.peerInfo(p)
	return &info, a.done(peerFields(p)...)
}

// find begins a command about one peer.
func (o *Operator) find(ctx context.Context, by Caller, what, peer string) (*act, mail.Peer, error) {
	a, err := o.enter(ctx, by, what)
	if err != nil {
		return nil, mail.Peer{}, err
	}
	p, err := o.s.o.Book.Desk().Find(ctx, peer)
	if err != nil {
		return nil, p, a.fail(err)
	}
	return a, p, nil
}

// Retire releases a peer's name; its waiting messages expire.
func (o *Operator) Retire(ctx context.Context, by Caller, peer string) (*PeerInfo, error) {
	a, p, err := o.find(ctx, by, "retire", peer)
	if err != nil {
		return nil, err
	}
	gone, err := o.s.o.Book.Desk().Retire(ctx, p.ID, func(v *mail.Released) any {
		return a.line(append(peerFields(p), field("name", p.Name), number("expired", int64(v.Pending)))...)
	})
	if err != nil {
		return nil, a.fail(err)
	}
	a.end()
	info := o.s.peerInfo(p)
	info.Pending, info.Held = gone.Pending, 0 // held messages expire too
	return &info, nil
}

// Pause sets or ends the pause of a peer: while it is paused, new messages for it are
// held.
func (o *Operator) Pause(ctx context.Context, by Caller, peer string, on bool) (*PeerInfo, error) {
	a, p, err := o.find(ctx, by, "pause", peer)
	if err != nil {
		return nil, err
	}
	err = o.s.o.Book.Desk().Pause(ctx, p.ID, on, func(v *mail.Peer) any {
		p.Pending, p.Held = v.Pending, v.Held
		return a.line(append(peerFields(p), field("paused", fmt.Sprint(on)))...)
	})
	if err != nil {
		return nil, a.fail(err)
	}
	a.end()
	p.Paused = on
	info := o.s.peerInfo(p)
	return &info, nil
}

// Transfer gives a name to another principal of this node, with its mail.
func (o *Operator) Transfer(ctx context.Context, by Caller, peer, to string) (*PeerInfo, error) {
	a, p, err := o.find(ctx, by, "transfer", peer)
	if err != nil {
		return nil, err
	}
	if _, _, err := principal.Parse(to); err != nil {
		return nil, a.fail(&mail.Error{Code: mail.InvalidArgument, Err: err})
	}
	moved, err := o.s.o.Book.Desk().Transfer(ctx, p.ID, mail.Qualify(o.s.o.Node, to), func(v *mail.Peer) any {
		return a.line(append(peerFields(*v), field("name", v.Name), field("from", p.Principal), field("to", v.Principal))...)
	})
	if err != nil {
		return nil, a.fail(err)
	}
	a.end()
	info := o.s.peerInfo(*moved)
	return &info, nil
}
