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

// box locks the mailbox of a peer, at most once in a job. Several mailboxes are locked in
// the order of their ids (boxesOf), so that jobs cannot deadlock. ErrNoRow: the peer has
// no mailbox.
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

// boxesOf locks several mailboxes in the order of their ids, which every job keeps. A
// mailbox that no longer exists is skipped and is not in j.boxes afterwards.
func (j mailboxes) boxesOf(peers ...string) error {
	slices.Sort(peers)
	for _, p := range slices.Compact(peers) {
		if _, err := j.box(p); err != nil && !errors.Is(err, store.ErrNoRow) {
			return err
		}
	}
	return nil
}

// save adds the counted changes to the mailbox's row.
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

// row is an open delivery that is about to change.
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

// errMoved reports that a delivery was not in the state that was read under the lock of
// its mailbox: another transaction wrote without that lock.
var errMoved = errors.New("mail: a delivery changed without its mailbox")

// end brings an open delivery to a final state. Each end makes a notice for the sender,
// except an acknowledgement without a note.
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

// moved logs a state change and signals the topics of the message and the mailbox.
func (j mailboxes) moved(r row, after string, epoch int64, reason string) {
	j.change(Change{MessageID: r.message, PeerID: r.peer, To: r.address, From: r.from, Before: r.state, After: after, Epoch: epoch, Reason: reason})
	j.signal(TopicMessage(r.message))
	if after != Acked && after != Rejected && after != Leased {
		j.signal(TopicMailbox(r.peer))
	}
}

// Reasons of a state change, for senders and the operator. They are constant words.
const (
	reasonTTL       = "ttl"
	reasonHold      = "hold"      // not approved in time
	reasonLease     = "lease"     // the lease ended without an acknowledgement
	reasonAttempts  = "attempts"  // Limits.Attempts leases ended so
	reasonTakeover  = "takeover"  // another session of the owner took the peer over
	reasonReleased  = "released"  // the name was released
	reasonFull      = "full"      // evicted to make room for a newer message
	reasonApproved  = "approved"  // approved by the operator
	reasonRefused   = "refused"   // refused by the operator
	reasonPurged    = "purged"    // purged by the operator
	reasonResumed   = "resumed"   // the mailbox is no longer paused
	reasonPaused    = "paused"    // the mailbox is paused
	reasonInbound   = "inbound"   // the recipient's inbound mode is hold
	reasonPolicy    = "policy"    // held by policy
	reasonInherited = "inherited" // a new delivery to the parent replaces it, as the child has ended
	reasonAgain     = "requeued"  // sent again by the operator, under a new id
	reasonTransfer  = "transfer"  // the name was given to another principal
)

// settle applies the time to a locked mailbox: a due delivery expires, returns to the
// queue, or becomes dead. It handles at most limit deliveries and returns their number.
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
