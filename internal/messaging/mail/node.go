package mail

import (
	"errors"
	"fmt"

	"github.com/doorward/doorward/internal/base/store"
)

// Broker is the name under which the daemon itself writes. It is reserved.
const Broker = "broker"

// Kinds of peers.
const (
	kindAgent    = "agent"
	kindOperator = "operator"
	kindBroker   = "broker"
	kindGone     = "gone" // released: its name is a tombstone, or free again
)

// expiredLease is the lease_until of a session of an earlier run of the daemon. It lies in
// the past, so the session is not live, and its next act renews the lease. A lease_until of
// 0 is different: that session has ended for good.
const expiredLease = 1

// sender is the sender of a message, as its envelope states it.
type sender struct {
	id, name, namespace, principal, grade string
	kind                                  string
	epoch                                 int64
	ancestors                             []string
	spawn                                 string
}

func (p Peer) sender(kind string) sender {
	return sender{id: p.ID, name: p.Name, namespace: p.Namespace, principal: p.Principal, grade: p.Grade,
		kind: kind, epoch: p.Epoch, ancestors: p.Ancestors, spawn: p.Spawn}
}

func (s sender) peer(node string) Peer {
	return Peer{ID: s.id, Name: s.name, Namespace: s.namespace, Principal: s.principal, Node: node, Grade: s.grade,
		Epoch: s.epoch, Ancestors: s.ancestors, Spawn: s.spawn, Inbound: InboundPolicy}
}

// settleIn enters this node or finds its rows, and ends the leases of sessions of an
// earlier run.
func (b *Book) settleIn(j *job) error {
	node := b.o.Node
	operator, broker := b.ids.next(j.now), b.ids.next(j.now)
	made, err := j.Exec(`INSERT INTO mail_nodes (node, slot, operator_id, broker_id, spawns_open)
		SELECT ?1, COALESCE(max(slot), 0) + 1, ?2, ?3, 0 FROM mail_nodes WHERE true ON CONFLICT DO NOTHING`,
		node, operator, broker)
	if err != nil {
		return err
	}
	var slot int64
	err = j.Row([]any{&slot, &operator, &broker}, `SELECT slot, operator_id, broker_id FROM mail_nodes WHERE node = ?1`, node)
	if errors.Is(err, store.ErrNoRow) {
		return errSlot
	}
	if err != nil {
		return err
	}
	b.operator = sender{id: operator, name: Operator, principal: Qualify(node, Operator), grade: "attested", kind: kindOperator, epoch: 1}
	b.broker = sender{id: broker, name: Broker, principal: Qualify(node, Broker), grade: "attested", kind: kindBroker, epoch: 1}
	if made == 1 {
		for _, s := range []sender{b.operator, b.broker} {
			if err := j.registering.insertPeer(s.peer(node), s.kind); err != nil {
				return err
			}
		}
	}
	var last int64
	if err := j.Row([]any{&last}, `SELECT COALESCE(max(id), 0) FROM mail_changes`); err != nil {
		return err
	}
	b.ticker.start(slot, last)
	if _, err := j.Exec(`UPDATE peers SET lease_until = ?2 WHERE node = ?1 AND lease_until > ?2`, node, expiredLease); err != nil {
		return fmt.Errorf("ending the leases of an earlier run: %w", err)
	}
	return nil
}

// OperatorID returns the peer id of this node's operator.
func (b *Book) OperatorID() string { return b.operator.id }

// insertPeer enters a new peer with its mailbox and outbox.
func (j registering) insertPeer(p Peer, kind string) error {
	_, err := j.Exec(`INSERT INTO peers (peer_id, kind, namespace, name, principal, session, node, grade, epoch, lease_until,
		last_seen, display, summary, labels, spawn_id, ancestors)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)`,
		p.ID, kind, p.Namespace, p.Name, p.Principal, p.Session, p.Node, p.Grade, p.Epoch, p.LeaseUntil,
		j.now, p.Display, p.Summary, labelText(p.Labels), p.Spawn, joinIDs(p.Ancestors))
	if err != nil {
		return fmt.Errorf("entering a peer: %w", err)
	}
	_, err = j.Exec(`INSERT INTO mailboxes (peer_id, active, principal, inbound, paused, ancestors, last_seq, bytes, accepted,
		held, queued, leased, acked, rejected, expired, dead, refused, purged, evicted)
		VALUES (?1, ?2, ?3, ?4, 0, ?5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)`,
		p.ID, kind != kindBroker, p.Principal, p.Inbound, joinIDs(p.Ancestors))
	if err != nil {
		return fmt.Errorf("entering a mailbox: %w", err)
	}
	_, err = j.Exec(`INSERT INTO outboxes (peer_id, last_notice, covered) VALUES (?1, 0, 0)`, p.ID)
	return err
}
