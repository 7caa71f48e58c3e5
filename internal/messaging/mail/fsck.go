package mail

import (
	"context"
	"errors"
	"fmt"

	"github.com/doorward/doorward/internal/base/store"
)

// finding is a problem with the job that repairs it; nil: it cannot be repaired from the rows.
type finding struct {
	Problem
	fix func(*job) error
}

// audit collects findings on one consistent view of the database.
type audit struct {
	*job
	check    Check
	findings []finding
}

func (a *audit) found(peer, message string, fix func(*job) error, format string, args ...any) {
	a.findings = append(a.findings, finding{Problem{peer, message, fmt.Sprintf(format, args...)}, fix})
}

// Fsck checks, for every mailbox, that each accepted message is in exactly one state,
// that the sequence numbers have no gaps, and that counters, notices and leases agree
// with the rows. With repair it corrects what the rows determine, and counts a delivery
// whose row is lost as purged. Deliveries that were deleted after their retention exist
// only in the counters.
func (d Desk) Fsck(ctx context.Context, repair bool, note Note[Check]) (*Check, error) {
	repaired := 0
	// A repair can reveal a fault that the repaired one concealed; the number of rounds
	// is bounded.
	for round := 0; ; round++ {
		a, err := d.audit(ctx)
		if err != nil {
			return nil, err
		}
		fixed := 0
		if repair && round < 4 {
			if fixed, err = d.repair(ctx, a.findings, note); err != nil {
				return nil, err
			}
		}
		if repaired += fixed; fixed > 0 {
			continue
		}
		out := &a.check
		out.Repaired, out.OK = repaired, len(a.findings) == 0
		out.Problems = []Problem{}
		for _, f := range a.findings {
			out.Problems = append(out.Problems, f.Problem)
		}
		return out, d.b.write(ctx, func(j *job) error {
			return noted(j, note, out)
		})
	}
}

// repair runs the fix of each finding that has one. Each repair has its own record.
func (d Desk) repair(ctx context.Context, all []finding, note Note[Check]) (fixed int, err error) {
	for _, f := range all {
		if f.fix == nil {
			continue
		}
		err := d.b.write(ctx, func(j *job) error {
			if err := f.fix(j); err != nil {
				return err
			}
			return noted(j, note, &Check{Problems: []Problem{f.Problem}, Repaired: 1})
		})
		if err != nil {
			return fixed, fmt.Errorf("repairing %q: %w", f.Problem.Problem, err)
		}
		fixed++
	}
	return fixed, nil
}

// audit runs all checks on one view of the database.
func (d Desk) audit(ctx context.Context) (*audit, error) {
	var a *audit
	err := d.b.read(ctx, func(j *job) error {
		a = &audit{job: j}
		for _, step := range []func() error{a.peers, a.names, a.shares, a.messages, a.mailboxes, a.seats, a.leases, a.notices} {
			if err := step(); err != nil {
				return fmt.Errorf("checking the mailboxes: %w", err)
			}
		}
		return nil
	})
	return a, err
}

// each runs a query whose rows are two texts.
func (a *audit) each(fn func(one, two string), query string, args ...any) error {
	return a.Each(func(scan func(...any) error) error {
		var one, two string
		if err := scan(&one, &two); err != nil {
			return err
		}
		fn(one, two)
		return nil
	}, query, args...)
}

// peers checks that each peer has an outbox, and a mailbox that agrees with the peer.
func (a *audit) peers() error {
	err := a.Row([]any{&a.check.Peers}, `SELECT count(*) FROM peers WHERE kind = 'agent'`)
	if err != nil {
		return err
	}
	err = a.each(func(peer, _ string) {
		a.found(peer, "", func(j *job) error { return j.repairing.mendMailbox(peer) }, "the peer has no mailbox, or its mailbox has another owner or another state")
	}, `SELECT p.peer_id, p.kind FROM peers p LEFT JOIN mailboxes m ON m.peer_id = p.peer_id
		WHERE m.peer_id IS NULL OR m.principal <> p.principal OR (m.active = 1) <> (p.kind IN ('agent', 'operator'))`)
	if err != nil {
		return err
	}
	return a.each(func(peer, _ string) {
		a.found(peer, "", func(j *job) error {
			_, err := j.Exec(`INSERT INTO outboxes (peer_id, last_notice, covered) SELECT ?1, COALESCE(max(notice_seq), 0), 0
				FROM deliveries WHERE sender_id = ?1 AND notice_seq > 0 ON CONFLICT (peer_id) DO NOTHING`, peer)
			return err
		}, "the peer has no outbox")
	}, `SELECT p.peer_id, p.kind FROM peers p LEFT JOIN outboxes o ON o.peer_id = p.peer_id WHERE o.peer_id IS NULL`)
}

// names checks that each agent owns its name, and that each name belongs to an agent.
func (a *audit) names() error {
	err := a.each(func(peer, name string) {
		a.found(peer, "", func(j *job) error { return j.repairing.mendName(peer) }, "the peer %s does not own its name", name)
	}, `SELECT p.peer_id, p.name FROM peers p LEFT JOIN peer_names n ON n.namespace = p.namespace AND n.name = p.name
		WHERE p.kind = 'agent' AND (n.peer_id IS NULL OR n.kind <> 'peer' OR n.peer_id <> p.peer_id OR n.principal <> p.principal)`)
	if err != nil {
		return err
	}
	return a.each(func(space, name string) {
		a.found("", "", func(j *job) error {
			_, err := j.Exec(`UPDATE peer_names SET kind = 'tombstone', expires_at = ?3 WHERE namespace = ?1 AND name = ?2 AND kind = 'peer'
				AND NOT EXISTS (SELECT 1 FROM peers p WHERE p.peer_id = peer_names.peer_id AND p.kind = 'agent'
					AND p.namespace = peer_names.namespace AND p.name = peer_names.name)`,
				space, name, j.now+j.b.o.Limits.Tombstone.Milliseconds())
			return err
		}, "the name %s@%s belongs to no peer", name, space)
	}, `SELECT n.namespace, n.name FROM peer_names n LEFT JOIN peers p ON p.peer_id = n.peer_id AND p.kind = 'agent'
			AND p.namespace = n.namespace AND p.name = n.name
		WHERE n.kind = 'peer' AND p.peer_id IS NULL`)
}

// shares checks the counters that several peers share: peers of a namespace, spawns of a
// node.
func (a *audit) shares() error {
	err := a.each(func(space, _ string) {
		a.found("", "", func(j *job) error {
			_, err := j.Exec(`INSERT INTO peer_spaces (namespace, peers) SELECT ?1, count(*) FROM peers WHERE kind = 'agent' AND namespace = ?1
				ON CONFLICT (namespace) DO UPDATE SET peers = excluded.peers`, space)
			return err
		}, "the count of peers of the namespace %s is wrong", space)
	}, `SELECT x.namespace, '' FROM (SELECT namespace FROM peer_spaces UNION SELECT namespace FROM peers WHERE kind = 'agent') x
		WHERE COALESCE((SELECT s.peers FROM peer_spaces s WHERE s.namespace = x.namespace), 0)
			<> (SELECT count(*) FROM peers p WHERE p.kind = 'agent' AND p.namespace = x.namespace)`)
	if err != nil {
		return err
	}
	return a.each(func(node, _ string) {
		a.found("", "", func(j *job) error {
			_, err := j.Exec(`UPDATE mail_nodes SET spawns_open = (SELECT count(*) FROM spawns s WHERE s.node = ?1 AND s.ended_at = 0) WHERE node = ?1`, node)
			return err
		}, "the count of spawns of the node %s is wrong", node)
	}, `SELECT n.node, '' FROM mail_nodes n WHERE n.spawns_open <> (SELECT count(*) FROM spawns s WHERE s.node = n.node AND s.ended_at = 0)`)
}

// messages checks that each delivery has its message, and each message a delivery.
func (a *audit) messages() error {
	err := a.each(func(message, peer string) {
		a.found(peer, message, func(j *job) error { return j.repairing.mendMessage(message) }, "the delivery has no message")
	}, `SELECT d.message_id, d.peer_id FROM deliveries d LEFT JOIN messages m ON m.message_id = d.message_id WHERE m.message_id IS NULL`)
	if err != nil {
		return err
	}
	return a.each(func(message, _ string) {
		a.found("", message, func(j *job) error { return j.sweeping.forgetBody(message) }, "the message has no delivery")
	}, `SELECT m.message_id, '' FROM messages m LEFT JOIN deliveries d ON d.message_id = m.message_id WHERE d.message_id IS NULL`)
}

// leases checks that a leased message was given in the present epoch of a mailbox that a
// session owns, that no open message is in a closed mailbox, and that each open delivery
// is due in time for the sweep.
func (a *audit) leases() error {
	err := a.each(func(message, peer string) {
		a.found(peer, message, func(j *job) error {
			return j.repairing.mendOpen(peer, `message_id = ?2 AND state = 'leased'`, message, func(x *box, r row) error { return j.mailboxes.endLease(x, r, reasonLease) })
		}, "the message is leased by a session that does not own the mailbox")
	}, `SELECT d.message_id, d.peer_id FROM deliveries d LEFT JOIN peers p ON p.peer_id = d.peer_id
		WHERE `+isOpen+` AND d.state = 'leased' AND (p.peer_id IS NULL OR p.kind <> 'agent' OR p.session = '' OR p.epoch <> d.given_epoch)`)
	if err != nil {
		return err
	}
	err = a.each(func(message, peer string) {
		a.found(peer, message, func(j *job) error {
			return j.repairing.mendOpen(peer, `message_id = ?2`, message, func(x *box, r row) error { return j.mailboxes.end(x, r, Expired, reasonReleased, "") })
		}, "the message waits in the mailbox of a peer that is gone")
	}, `SELECT d.message_id, d.peer_id FROM deliveries d JOIN mailboxes m ON m.peer_id = d.peer_id WHERE `+isOpen+` AND m.active = 0`)
	if err != nil {
		return err
	}
	return a.each(func(message, peer string) {
		a.found(peer, message, func(j *job) error {
			return j.repairing.mendOpen(peer, `message_id = ?2`, message, func(x *box, r row) error {
				_, err := j.Exec(`UPDATE deliveries SET due = CASE WHEN state = 'leased' AND lease_until < expires_at THEN lease_until
					WHEN state = 'held' AND changed_at + ?3 < expires_at THEN changed_at + ?3 ELSE expires_at END
					WHERE message_id = ?1 AND peer_id = ?2`, r.message, r.peer, j.b.o.Limits.Hold.Milliseconds())
				return err
			})
		}, "the time at which the sweep handles the message is too late")
	}, `SELECT message_id, peer_id FROM deliveries WHERE `+isOpen+` AND (due > expires_at OR (state = 'leased' AND due > lease_until)
		OR (state = 'queued' AND due <> expires_at))`)
}

// notices checks that every final state except acked has made one notice, with a number
// that no other notice of its sender has.
func (a *audit) notices() error {
	err := a.each(func(message, peer string) {
		a.found(peer, message, func(j *job) error { return j.repairing.mendNotice(message, peer) }, "the sender has no notice of the end")
	}, `SELECT d.message_id, d.peer_id FROM deliveries d LEFT JOIN outboxes o ON o.peer_id = d.sender_id
		WHERE `+isFinal+` AND d.state <> 'acked' AND (d.notice_seq = 0 OR d.notice_state <> d.state)`)
	if err != nil {
		return err
	}
	err = a.each(func(message, peer string) {
		a.found(peer, message, func(j *job) error { return j.repairing.mendNotice(message, peer) }, "the notice has the number of another notice")
	}, `SELECT d.message_id, d.peer_id FROM deliveries d JOIN deliveries e ON e.sender_id = d.sender_id AND e.notice_seq = d.notice_seq
		WHERE d.notice_seq > 0 AND e.notice_seq > 0 AND (e.message_id < d.message_id OR (e.message_id = d.message_id AND e.peer_id < d.peer_id))`)
	if err != nil {
		return err
	}
	return a.each(func(peer, _ string) {
		a.found(peer, "", func(j *job) error {
			_, err := j.Exec(`UPDATE outboxes SET last_notice = COALESCE((SELECT max(d.notice_seq) FROM deliveries d WHERE d.sender_id = ?1 AND d.notice_seq > 0), 0)
				WHERE peer_id = ?1 AND last_notice < COALESCE((SELECT max(d.notice_seq) FROM deliveries d WHERE d.sender_id = ?1 AND d.notice_seq > 0), 0)`, peer)
			if err == nil {
				_, err = j.Exec(`UPDATE outboxes SET covered = last_notice WHERE peer_id = ?1 AND covered > last_notice`, peer)
			}
			return err
		}, "the counters of the sender's notices are wrong")
	}, `SELECT o.peer_id, '' FROM outboxes o WHERE o.covered > o.last_notice
		OR o.last_notice < COALESCE((SELECT max(d.notice_seq) FROM deliveries d WHERE d.sender_id = o.peer_id AND d.notice_seq > 0), 0)`)
}

// mendOpen runs fn on open deliveries of a mailbox, under its lock.
func (j repairing) mendOpen(peer, where, message string, fn func(*box, row) error) error {
	x, err := j.mailboxes.box(peer)
	if errors.Is(err, store.ErrNoRow) {
		return nil
	}
	if err != nil {
		return err
	}
	all, err := j.mailboxes.rows(`peer_id = ?1 AND `+isOpen+` AND `+where, peer, message)
	for _, r := range all {
		if err == nil {
			err = fn(x, r)
		}
	}
	return err
}
