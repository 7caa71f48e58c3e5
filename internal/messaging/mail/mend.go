package mail

import (
	"errors"
	"fmt"

	"github.com/doorward/doorward/internal/base/store"
)

// account holds the counts of a mailbox that follow from its rows, kept and deleted.
type account struct {
	rows     tally
	bytes    int64 // of open deliveries
	seqs     int64 // deliveries with a sequence number, kept and deleted
	top      int64 // the highest sequence number
	twice    int64 // how many sequence numbers are duplicates
	accepted int64
}

// accounts computes the accounts of one mailbox, or (empty) of all.
func (j repairing) accounts(peer string) (map[string]*account, error) {
	all := make(map[string]*account)
	of := func(id string) *account {
		if all[id] == nil {
			all[id] = &account{}
		}
		return all[id]
	}
	err := j.Each(func(scan func(...any) error) error {
		var id, state string
		var n, bytes, seqs, top int64
		if err := scan(&id, &state, &n, &bytes, &seqs, &top); err != nil {
			return err
		}
		x := of(id)
		x.rows.add(state, n)
		x.seqs, x.top = x.seqs+seqs, max(x.top, top)
		if !isFinalState(state) {
			x.bytes += bytes
		}
		return nil
	}, `SELECT peer_id, state, count(*), CAST(sum(bytes) AS BIGINT), CAST(sum(CASE WHEN seq > 0 THEN 1 ELSE 0 END) AS BIGINT), max(seq)
		FROM deliveries WHERE ?1 = '' OR peer_id = ?1 GROUP BY peer_id, state`, peer)
	if err != nil {
		return nil, err
	}
	err = j.Each(func(scan func(...any) error) error {
		var id string
		var n int64
		err := scan(&id, &n)
		of(id).twice = n
		return err
	}, `SELECT peer_id, count(*) - count(DISTINCT seq) FROM deliveries WHERE seq > 0 AND (?1 = '' OR peer_id = ?1) GROUP BY peer_id`, peer)
	if err != nil {
		return nil, err
	}
	return all, j.Each(func(scan func(...any) error) error {
		var id, state string
		var n, seqs int64
		if err := scan(&id, &state, &n, &seqs); err != nil {
			return err
		}
		x := of(id)
		x.rows.add(state, n)
		x.seqs += seqs
		return nil
	}, `SELECT peer_id, state, rows_gone, seqs_gone FROM mail_forgotten WHERE ?1 = '' OR peer_id = ?1`, peer)
}

// recount sets the counters of a mailbox to its account. A sequence number without a row,
// which retention did not delete, belonged to a delivery that is lost: it is counted as
// purged.
func (j repairing) recount(peer string) error {
	x, err := j.mailboxes.box(peer)
	if errors.Is(err, store.ErrNoRow) {
		return nil
	}
	if err != nil {
		return err
	}
	all, err := j.accounts(peer)
	if err != nil {
		return err
	}
	a := all[peer]
	if a == nil {
		a = &account{}
	}
	last := max(x.lastSeq, a.top)
	if lost := last - a.seqs; lost > 0 {
		a.rows.add(Purged, lost)
		_, err := j.Exec(`INSERT INTO mail_forgotten (peer_id, state, rows_gone, seqs_gone) VALUES (?1, 'purged', ?2, ?2)
			ON CONFLICT (peer_id, state) DO UPDATE SET rows_gone = mail_forgotten.rows_gone + excluded.rows_gone,
				seqs_gone = mail_forgotten.seqs_gone + excluded.seqs_gone`, peer, lost)
		if err != nil {
			return err
		}
	}
	args := []any{peer, max(last, a.seqs), a.bytes, a.rows.sum()}
	for _, n := range a.rows {
		args = append(args, n)
	}
	_, err = j.Exec(`UPDATE mailboxes SET last_seq = ?2, bytes = ?3, accepted = ?4, held = ?5, queued = ?6, leased = ?7, acked = ?8,
		rejected = ?9, expired = ?10, dead = ?11, refused = ?12, purged = ?13, evicted = ?14 WHERE peer_id = ?1`, args...)
	j.signal(TopicMailbox(peer))
	return err
}

// mendMailbox creates a missing mailbox, and sets its principal, ancestors and state from
// the peer.
func (j repairing) mendMailbox(peer string) error {
	_, err := j.Exec(`INSERT INTO mailboxes (peer_id, active, principal, inbound, paused, ancestors, last_seq, bytes, accepted,
			held, queued, leased, acked, rejected, expired, dead, refused, purged, evicted)
		VALUES (?1, 0, '', 'policy', 0, '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) ON CONFLICT (peer_id) DO NOTHING`, peer)
	if err != nil {
		return err
	}
	_, err = j.Exec(`UPDATE mailboxes SET principal = p.principal, ancestors = p.ancestors,
		active = CASE WHEN p.kind IN ('agent', 'operator') THEN 1 ELSE 0 END FROM peers p WHERE p.peer_id = mailboxes.peer_id AND p.peer_id = ?1`, peer)
	return err
}

// mendName gives a peer its name back, or a new name when another peer has it.
func (j repairing) mendName(peer string) error {
	p, err := j.releasing.agent(peer)
	if err != nil {
		return err
	}
	for _, name := range []string{p.Name, madeName("agent"), madeName("agent")} {
		n, err := j.Exec(`INSERT INTO peer_names (namespace, name, kind, peer_id, principal, parent, expires_at) VALUES (?1, ?2, 'peer', ?3, ?4, ?5, 0)
			ON CONFLICT (namespace, name) DO UPDATE SET kind = 'peer', peer_id = excluded.peer_id, principal = excluded.principal, parent = excluded.parent, expires_at = 0
			WHERE peer_names.kind <> 'peer' OR peer_names.peer_id = excluded.peer_id`, p.Namespace, name, p.ID, p.Principal, p.parent())
		if err != nil {
			return err
		}
		if n == 1 {
			_, err = j.Exec(`UPDATE peers SET name = ?2 WHERE peer_id = ?1`, p.ID, name)
			return err
		}
	}
	return fmt.Errorf("no name is free for %s", p.ID)
}

// mendMessage stores an empty message in place of a lost one. Its open deliveries are
// purged.
func (j repairing) mendMessage(message string) error {
	all, err := j.mailboxes.rows(`message_id = ?1 ORDER BY peer_id`, message)
	if err != nil || len(all) == 0 {
		return err
	}
	var peers []string
	for _, r := range all {
		peers = append(peers, r.peer)
	}
	if err := j.mailboxes.boxesOf(peers...); err != nil {
		return err
	}
	_, err = j.Exec(`INSERT INTO messages (message_id, thread_id, reply_to, depth, kind, priority, subject, body, bytes, sha256,
		repeats, refs, sent_at, ttl, ack_deadline, sender_id, from_name, from_namespace, from_principal, from_grade, from_epoch)
		VALUES (?1, ?1, '', 0, 'inform', 'normal', '', '', 0, ?2, 0, '', ?3, 0, 0, ?4, ?5, '', '', '', 0) ON CONFLICT (message_id) DO NOTHING`,
		message, []byte{}, j.now, all[0].sender, all[0].from)
	if err != nil {
		return err
	}
	for _, r := range all {
		if x := j.boxes[r.peer]; x != nil && !isFinalState(r.state) {
			if err := j.mailboxes.end(x, r, Purged, reasonPurged, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// mendNotice notifies the sender of a delivery of its state again.
func (j repairing) mendNotice(message, peer string) error {
	all, err := j.mailboxes.rows(`message_id = ?1 AND peer_id = ?2 AND notice_seq >= 0`, message, peer)
	for _, r := range all {
		j.notify(notice{r.sender, r.message, r.peer, r.state})
	}
	return err
}
