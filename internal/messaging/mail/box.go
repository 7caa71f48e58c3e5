package mail

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/store"
)

// box is a mailbox whose row this transaction has locked: no other transaction
// changes its deliveries before the commit. Changes are counted here and added to
// the row at the end.
type box struct {
	peer, principal string
	inbound         string
	active, paused  bool
	ancestors       []string
	lastSeq         int64
	bytes           int64
	tally           tally

	deltas      tally
	deltaBytes  int64
	deltaAccept int64
}

var ownTally = strings.ReplaceAll(tallyColumns, "m.", "")

// box locks a mailbox, once. Of several the caller asks in the order of their
// ids (boxesOf). ErrNoRow: there is none.
func (j mailboxes) box(peer string) (*box, error) {
	if x, ok := j.boxes[peer]; ok {
		return x, nil
	}
	x := &box{peer: peer}
	var ancestors string
	dest := append([]any{&x.principal, &x.inbound, &x.active, &x.paused, &ancestors, &x.lastSeq, &x.bytes}, x.tally.places()...)
	err := j.Row(dest, `UPDATE mailboxes SET active = active WHERE peer_id = ?1
		RETURNING principal, inbound, active, paused, ancestors, last_seq, bytes, `+ownTally, peer)
	if errors.Is(err, store.ErrNoRow) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("locking a mailbox: %w", err)
	}
	x.ancestors = splitIDs(ancestors)
	if j.boxes == nil {
		j.boxes = make(map[string]*box)
	}
	j.boxes[peer] = x
	return x, nil
}

// boxesOf locks several mailboxes in the order that all keep. One that is no
// more is not there afterwards.
func (j mailboxes) boxesOf(peers ...string) error {
	slices.Sort(peers)
	for _, p := range slices.Compact(peers) {
		if _, err := j.box(p); err != nil && !errors.Is(err, store.ErrNoRow) {
			return err
		}
	}
	return nil
}

// save adds what was counted.
func (j mailboxes) save(x *box) error {
	if x.deltas == (tally{}) && x.deltaBytes == 0 && x.deltaAccept == 0 {
		return nil
	}
	args := []any{x.peer, x.deltaBytes, x.deltaAccept}
	for _, n := range x.deltas {
		args = append(args, n)
	}
	_, err := j.Exec(`UPDATE mailboxes SET bytes = bytes + ?2, accepted = accepted + ?3, held = held + ?4, queued = queued + ?5,
		leased = leased + ?6, acked = acked + ?7, rejected = rejected + ?8, expired = expired + ?9, dead = dead + ?10,
		refused = refused + ?11, purged = purged + ?12, evicted = evicted + ?13 WHERE peer_id = ?1`, args...)
	if err != nil {
		return fmt.Errorf("counting in a mailbox: %w", err)
	}
	x.deltas, x.deltaBytes, x.deltaAccept = tally{}, 0, 0
	return nil
}

// shift counts that a delivery went from one state to another.
func (x *box) shift(before, after string, bytes int64) {
	x.deltas.add(before, -1)
	x.deltas.add(after, 1)
	x.tally.add(before, -1)
	x.tally.add(after, 1)
	if isFinalState(after) {
		x.deltaBytes -= bytes
		x.bytes -= bytes
	}
}

// row is what is known of an open delivery that is about to change.
type row struct {
	message, peer, sender string
	seq                   int64
	state                 string
	due, expiresAt        int64
	bytes                 int64
	attempts              int64
	address, from         string
	givenAt               int64
	reason                string
}

const rowColumns = `message_id, peer_id, sender_id, seq, state, due, expires_at, bytes, attempts, address, from_name, given_at, reason`

// rows reads deliveries of a mailbox that is locked.
func (j mailboxes) rows(where string, args ...any) ([]row, error) {
	var all []row
	err := j.Each(func(scan func(...any) error) error {
		var r row
		err := scan(&r.message, &r.peer, &r.sender, &r.seq, &r.state, &r.due, &r.expiresAt, &r.bytes, &r.attempts, &r.address, &r.from, &r.givenAt, &r.reason)
		all = append(all, r)
		return err
	}, `SELECT `+rowColumns+` FROM deliveries WHERE `+where, args...)
	return all, err
}

// errMoved says that a delivery was not in the state in which it was read under
// the lock of its mailbox: somebody wrote without that lock.
var errMoved = errors.New("mail: a delivery changed without its mailbox")

// end brings an open delivery to a final state. Every one but a plain
// acknowledgement makes a notice.
func (j mailboxes) end(x *box, r row, state, reason, note string) error {
	acked := int64(0)
	if state == Acked || state == Rejected {
		acked = j.now
	}
	n, err := j.Exec(`UPDATE deliveries SET state = ?4, due = ?5, changed_at = ?6, acked_at = ?7, reason = ?8, note = ?9
		WHERE message_id = ?1 AND peer_id = ?2 AND state = ?3`,
		r.message, r.peer, r.state, state, j.now+j.b.o.Limits.text(state).Milliseconds(), j.now, acked, reason, note)
	if err == nil && n != 1 {
		err = errMoved
	}
	if err != nil {
		return fmt.Errorf("ending a delivery as %s: %w", state, err)
	}
	x.shift(r.state, state, r.bytes)
	if state != Acked || note != "" {
		j.notify(notice{r.sender, r.message, r.peer, state})
	}
	j.moved(r, state, 0, reason)
	return nil
}

// moved logs a change and wakes who waits for the message or the mailbox.
func (j mailboxes) moved(r row, after string, epoch int64, reason string) {
	j.change(Change{MessageID: r.message, PeerID: r.peer, To: r.address, From: r.from, Before: r.state, After: after, Epoch: epoch, Reason: reason})
	j.signal(TopicMessage(r.message))
	if after != Acked && after != Rejected && after != Leased {
		j.signal(TopicMailbox(r.peer))
	}
}

// Reasons of a change, for senders and the operator: constant words.
const (
	reasonTTL       = "ttl"
	reasonHold      = "hold"      // nobody approved it in time
	reasonLease     = "lease"     // it ended without an acknowledgement
	reasonAttempts  = "attempts"  // too many leases ended so
	reasonTakeover  = "takeover"  // another session of the owner
	reasonReleased  = "released"  // the name was
	reasonFull      = "full"      // evicted for a newer one
	reasonApproved  = "approved"  // by the operator
	reasonRefused   = "refused"   // by the operator
	reasonPurged    = "purged"    // by the operator
	reasonResumed   = "resumed"   // the mailbox is no longer paused
	reasonPaused    = "paused"    // the mailbox is
	reasonInbound   = "inbound"   // the recipient holds what comes
	reasonPolicy    = "policy"    // holds it
	reasonInherited = "inherited" // by the parent, as the child has ended
	reasonAgain     = "requeued"  // by the operator, under a new id
	reasonTransfer  = "transfer"  // the name went to another principal
)

// settle lets time pass in a locked mailbox: what is due expires, goes back to
// the queue, or dies. At most limit deliveries; it returns how many were.
func (j mailboxes) settle(x *box, limit int) (settled int, err error) {
	due, err := j.rows(`peer_id = ?1 AND `+isOpen+` AND due <= ?2 LIMIT ?3`, x.peer, j.now, limit)
	if err != nil {
		return 0, fmt.Errorf("reading what is due: %w", err)
	}
	for _, r := range due {
		switch {
		case r.expiresAt <= j.now:
			err = j.end(x, r, Expired, reasonTTL, "")
		case r.state == Held:
			err = j.end(x, r, Expired, reasonHold, "")
		case r.state == Leased:
			err = j.endLease(x, r, reasonLease)
		default: // queued and not expired: the row was repaired by hand
			_, err = j.Exec(`UPDATE deliveries SET due = expires_at WHERE message_id = ?1 AND peer_id = ?2`, r.message, r.peer)
		}
		if err != nil {
			return 0, err
		}
	}
	return len(due), nil
}

// endLease returns a delivery to the queue, or makes it dead after too many
// unanswered leases.
func (j mailboxes) endLease(x *box, r row, reason string) error {
	if r.attempts >= int64(j.b.o.Limits.Attempts) {
		return j.end(x, r, Dead, reasonAttempts, "")
	}
	n, err := j.Exec(`UPDATE deliveries SET state = 'queued', due = expires_at, lease_until = 0, changed_at = ?3
		WHERE message_id = ?1 AND peer_id = ?2 AND state = 'leased'`, r.message, r.peer, j.now)
	if err == nil && n != 1 {
		err = errMoved
	}
	if err != nil {
		return fmt.Errorf("ending a lease: %w", err)
	}
	x.shift(Leased, Queued, r.bytes)
	j.moved(r, Queued, 0, reason)
	return nil
}
