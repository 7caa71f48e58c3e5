package mail

import (
	"fmt"
	"maps"
	"slices"
)

// counted holds the counters of a mailbox's row.
type counted struct {
	account
	lastSeq int64
}

// differs describes the first contradiction between the counters and the rows; empty:
// none.
func (c counted) differs(a account) string {
	for i, s := range states {
		if c.rows[i] != a.rows[i] {
			return fmt.Sprintf("%d deliveries are counted as %s, and there are %d", c.rows[i], s, a.rows[i])
		}
	}
	switch {
	case c.accepted != c.rows.sum():
		return fmt.Sprintf("%d deliveries were accepted, and the states sum up to %d", c.accepted, c.rows.sum())
	case c.bytes != a.bytes:
		return fmt.Sprintf("%d bytes are counted, and the open messages have %d", c.bytes, a.bytes)
	}
	return ""
}

// mailboxes checks that the accepted deliveries of each mailbox are the sum of all
// states, and that the counters agree with the rows.
func (a *audit) mailboxes() error {
	all, err := a.repairing.accounts("")
	if err != nil {
		return err
	}
	var sum tally
	boxes := make(map[string]counted)
	err = a.Each(func(scan func(...any) error) error {
		var id string
		var c counted
		if err := scan(append([]any{&id, &c.accepted, &c.bytes, &c.lastSeq}, c.rows.places()...)...); err != nil {
			return err
		}
		boxes[id] = c
		a.check.Accepted += c.accepted
		for i, n := range c.rows {
			sum[i] += n
		}
		return nil
	}, `SELECT m.peer_id, m.accepted, m.bytes, m.last_seq, `+tallyColumns+` FROM mailboxes m`)
	a.check.States = sum.byState()
	for _, id := range slices.Sorted(maps.Keys(boxes)) {
		a.mailbox(id, boxes[id], all[id])
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if _, ok := boxes[id]; !ok {
			a.found(id, "", func(j *job) error { return j.repairing.mendMailbox(id) }, "there are deliveries, but no mailbox")
		}
	}
	return err
}

func (a *audit) mailbox(id string, c counted, rows *account) {
	if rows == nil {
		rows = &account{}
	}
	if id == past { // it has no rows, only counters
		if c.accepted != c.rows.sum() {
			a.found(id, "", nil, "the counts of deleted peers do not add up")
		}
		return
	}
	if what := c.differs(*rows); what != "" {
		a.found(id, "", func(j *job) error { return j.repairing.recount(id) }, "%s", what)
	}
	switch {
	case rows.twice > 0:
		a.found(id, "", nil, "%d sequence numbers were given twice", rows.twice)
	case rows.top > c.lastSeq:
		a.found(id, "", func(j *job) error { return j.repairing.recount(id) }, "the sequence number %d is higher than the last, %d", rows.top, c.lastSeq)
	case rows.seqs < c.lastSeq:
		a.found(id, "", func(j *job) error { return j.repairing.recount(id) }, "%d of %d sequence numbers are missing", c.lastSeq-rows.seqs, c.lastSeq)
	case rows.seqs > c.lastSeq:
		a.found(id, "", func(j *job) error { return j.repairing.recount(id) }, "there are %d deliveries with a sequence number, and the last number is %d", rows.seqs, c.lastSeq)
	}
}

// seats checks that an open delivery has a sequence number exactly when it is not held.
func (a *audit) seats() error {
	err := a.each(func(message, peer string) {
		a.found(peer, message, func(j *job) error {
			return j.repairing.mendOpen(peer, `message_id = ?2 AND state <> 'held' AND seq = 0`, message, func(x *box, r row) error {
				err := j.Row([]any{&r.seq}, `UPDATE mailboxes SET last_seq = last_seq + 1 WHERE peer_id = ?1 RETURNING last_seq`, peer)
				if err == nil {
					_, err = j.Exec(`UPDATE deliveries SET seq = ?3 WHERE message_id = ?1 AND peer_id = ?2`, r.message, r.peer, r.seq)
				}
				return err
			})
		}, "the message is not held and has no sequence number")
	}, `SELECT message_id, peer_id FROM deliveries WHERE `+isOpen+` AND state <> 'held' AND seq = 0`)
	if err != nil {
		return err
	}
	return a.each(func(message, peer string) {
		a.found(peer, message, nil, "the message is held and has a sequence number")
	}, `SELECT message_id, peer_id FROM deliveries WHERE `+isOpen+` AND state = 'held' AND seq > 0`)
}
