package mail

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/store"
)

// Ranks decide which limits of a mailbox bind a sender. A report of the broker is about
// an agent that the recipient itself started, so a mailbox full of other messages does
// not stop it (BeginSpawn bounds these reports). A message that the operator sends again
// needs room in the mailbox. The operator's own messages have a reserve, so that neither
// a full mailbox nor a hold stops them.
const (
	rankAgent = iota
	rankBroker
	rankAgain
	rankOperator
)

// The reserve for the operator in each mailbox: open messages, and their bytes.
const (
	reserveMessages = 100
	reserveBytes    = 8 << 20
)

func (m outgoing) rank() int {
	switch {
	case m.again:
		return rankAgain
	case m.from.kind == kindBroker:
		return rankBroker
	case m.from.kind == kindOperator:
		return rankOperator
	}
	return rankAgent
}

// heldSQL is the condition, inside takeSeat, under which a message is held.
const heldSQL = `(?4 = 1 OR (?5 = 0 AND mailboxes.inbound = 'hold') OR (?5 < 2 AND mailboxes.paused = 1))`

// takeSeat is the statement that accepts a message for one mailbox. It locks the row
// until the commit, so that sequence numbers have no gaps and follow the order of
// commits, and it checks the recipient's present state. No row: the message is not
// accepted. The open messages of the sender are counted only when the mailbox holds at
// least that many. This count and the search for a repeat are exact, because the sends of
// one sender are serialised (fence). A message that seems to be sent later than now can be a
// repeat: a transaction that waited for another one has the earlier time. One that is further
// ahead is from before the clock was set back, and is none. The lease in the result is -1 if
// the recipient is recalled (?16) and is not an agent of that name and namespace.
const takeSeat = `UPDATE mailboxes SET accepted = accepted + 1, bytes = bytes + ?3,
	last_seq = last_seq + CASE WHEN ` + heldSQL + ` THEN 0 ELSE 1 END,
	held = held + CASE WHEN ` + heldSQL + ` THEN 1 ELSE 0 END,
	queued = queued + CASE WHEN ` + heldSQL + ` THEN 0 ELSE 1 END
	WHERE mailboxes.peer_id = ?1 AND mailboxes.active = 1 AND mailboxes.principal = ?2 AND (mailboxes.inbound <> 'refuse' OR ?5 > 0)
	AND (?5 = 1 OR (?5 < 3 AND mailboxes.held + mailboxes.queued + mailboxes.leased < ?6 AND mailboxes.bytes + ?3 <= ?7)
		OR (?5 = 3 AND (SELECT count(*) FROM deliveries WHERE peer_id = ?1 AND sender_id = ?9 AND ` + isOpen + `) < ?13
			AND (SELECT COALESCE(sum(bytes), 0) FROM deliveries WHERE peer_id = ?1 AND sender_id = ?9 AND ` + isOpen + `) + ?3 <= ?14))
	AND (?5 = 1 OR ?5 = 3 OR mailboxes.held + mailboxes.queued + mailboxes.leased < ?8 OR (SELECT count(*) FROM deliveries WHERE peer_id = ?1 AND sender_id = ?9 AND ` + isOpen + `) < ?8)
	AND NOT EXISTS (SELECT 1 FROM messages s JOIN deliveries d ON d.message_id = s.message_id AND d.peer_id = ?1
		WHERE s.sender_id = ?9 AND s.repeats = ?10 AND s.sent_at > ?11 AND s.sent_at <= ?15 AND s.sha256 = ?12)
	RETURNING CASE WHEN ` + heldSQL + ` THEN 0 ELSE mailboxes.last_seq END, mailboxes.inbound, mailboxes.paused, mailboxes.ancestors,
		COALESCE((SELECT CASE WHEN ?16 = '' OR (p.name = ?16 AND p.namespace = ?17 AND p.kind = 'agent') THEN p.lease_until ELSE -1 END
			FROM peers p WHERE p.peer_id = ?1), -1)`

// repeatsSQL selects, inside whyNot, the messages that a message repeats.
const repeatsSQL = `FROM messages s JOIN deliveries d ON d.message_id = s.message_id AND d.peer_id = ?1
	WHERE s.sender_id = ?2 AND s.repeats = ?3 AND s.sent_at > ?4 AND s.sent_at <= ?6 AND s.sha256 = ?5`

// seat is the result of takeSeat.
type seat struct {
	to        Recipient
	seq       int64 // 0: held
	inbound   string
	paused    bool
	ancestors []string
	live      bool
	evicted   int
}

// place accepts a message for all recipients, or returns the error with those that cannot
// take it.
func (j placing) place(m outgoing, to []Recipient) ([]Placed, error) {
	seats, err := j.seats(m, to)
	if err != nil {
		return nil, err
	}
	if err := m.store(j.job); err != nil {
		return nil, err
	}
	placed := make([]Placed, len(seats))
	for i, s := range seats {
		if placed[i], err = j.deliver(m, s); err != nil {
			return nil, err
		}
	}
	return placed, nil
}

// seats takes a seat for each recipient, in the order of locks, and returns them in the
// order of to. It tries all recipients, so that the error names each one that it
// concerns.
func (j placing) seats(m outgoing, to []Recipient) ([]seat, error) {
	seats := make([]seat, len(to))
	refused := make(map[string]*Error)
	order := make([]int, len(to))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(to[a].PeerID, to[b].PeerID) })
	for _, i := range order {
		err := j.loops(m, to[i])
		if err == nil {
			seats[i], err = j.seat(m, to[i])
		}
		var e *Error
		if err == nil {
			continue
		}
		if !errors.As(err, &e) {
			return nil, err
		}
		if refused[e.Code] == nil {
			refused[e.Code] = &Error{Code: e.Code}
		}
		x := refused[e.Code]
		x.First = cmp.Or(x.First, e.First)
		x.Retry = max(x.Retry, e.Retry)
		x.Recipients = append(x.Recipients, to[i].To)
	}
	for _, code := range []string{UnknownRecipient, RecipientRefuses, LoopSuspected, DuplicateSuppressed, SenderQuota, MailboxFull} {
		if e := refused[code]; e != nil {
			return nil, e
		}
	}
	return seats, nil
}

// loops refuses a message into a thread that two peers fill too fast.
func (j placing) loops(m outgoing, to Recipient) error {
	l := j.b.o.Limits
	if m.thread == m.id || l.ThreadMessages < 0 || m.from.kind != kindAgent {
		return nil
	}
	var n, oldest int64
	err := j.Row([]any{&n, &oldest}, `SELECT count(*), COALESCE(min(m.sent_at), 0)
		FROM messages m JOIN deliveries d ON d.message_id = m.message_id
		WHERE m.thread_id = ?1 AND m.thread_id <> m.message_id AND m.sent_at > ?2
			AND ((m.sender_id = ?3 AND d.peer_id = ?4) OR (m.sender_id = ?4 AND d.peer_id = ?3))`,
		m.thread, j.now-l.ThreadTime.Milliseconds(), m.from.id, to.PeerID)
	if err != nil {
		return fmt.Errorf("counting in a thread: %w", err)
	}
	if n >= int64(l.ThreadMessages) {
		return &Error{Code: LoopSuspected, Retry: time.Duration(oldest-j.now)*time.Millisecond + l.ThreadTime}
	}
	return nil
}

// seat takes a seat for a message. If the book evicts, it makes room in a full mailbox.
func (j placing) seat(m outgoing, to Recipient) (seat, error) {
	evicted := 0
	for range 3 {
		s, err := j.takeSeat(m, to)
		if err == nil {
			s.evicted = evicted
			return s, nil
		}
		if !errors.Is(err, store.ErrNoRow) {
			return s, fmt.Errorf("reserving a place in a mailbox: %w", err)
		}
		if err := j.whyNot(m, to); err != nil {
			return s, err
		}
		// The mailbox is full.
		if !j.b.o.Evict || m.rank() == rankOperator {
			break
		}
		n, err := j.makeRoom(m, to.PeerID)
		if err != nil {
			return s, err
		}
		evicted += n
	}
	return seat{}, &Error{Code: MailboxFull, Retry: fullRetry}
}

// fullRetry is an estimate, because it is unknown when the recipient will read.
const fullRetry = 30 * time.Second

// takeSeat runs the statement takeSeat. ErrNoRow: the message was not accepted.
func (j placing) takeSeat(m outgoing, to Recipient) (seat, error) {
	s, l := seat{to: to}, j.b.o.Limits
	since, until := j.repeating()
	if m.from.kind != kindAgent {
		since, until = 0, 0 // no match
	}
	var ancestors, name, namespace string
	var lease int64
	if to.As != nil {
		name, namespace = to.As.Name, to.As.Namespace
	}
	err := j.Row([]any{&s.seq, &s.inbound, &s.paused, &ancestors, &lease}, takeSeat,
		to.PeerID, to.Principal, m.bytes, to.Hold, m.rank(), l.MailboxMessages, l.MailboxBytes, l.SenderMessages,
		m.from.id, m.repeats(), since, m.sha256, reserveMessages, reserveBytes, until, name, namespace)
	if err == nil && to.As != nil && lease < 0 {
		return s, ErrChanged
	}
	s.ancestors, s.live = splitIDs(ancestors), lease > j.now || to.PeerID == j.b.operator.id
	return s, err
}

// repeating returns the times after and until which the same body was sent as a repeat. With a
// negative Duplicate there is no such time.
func (j placing) repeating() (since, until int64) {
	d := j.b.o.Limits.Duplicate.Milliseconds()
	return j.now - d, j.now + d
}

// whyNot returns the error for a seat that was not given; nil: the mailbox is full. It
// only explains; takeSeat decides.
func (j placing) whyNot(m outgoing, to Recipient) error {
	var principal, inbound string
	var active bool
	var open, from, last int64
	var first string
	l := j.b.o.Limits
	since, until := j.repeating()
	err := j.Row([]any{&principal, &inbound, &active, &open, &from, &first, &last}, `SELECT principal, inbound, active, held + queued + leased,
		(SELECT count(*) FROM deliveries WHERE peer_id = ?1 AND sender_id = ?2 AND `+isOpen+`),
		COALESCE((SELECT min(s.message_id) `+repeatsSQL+`), ''), COALESCE((SELECT max(s.sent_at) `+repeatsSQL+`), 0)
		FROM mailboxes WHERE peer_id = ?1`,
		to.PeerID, m.from.id, m.repeats(), since, m.sha256, until)
	switch rank := m.rank(); {
	case errors.Is(err, store.ErrNoRow), err == nil && (!active || principal != to.Principal):
		return refuse(UnknownRecipient)
	case err != nil:
		return fmt.Errorf("finding the reason of a refusal: %w", err)
	case inbound == InboundRefuse && rank == rankAgent:
		return refuse(RecipientRefuses)
	case first != "" && m.from.kind == kindAgent:
		return &Error{Code: DuplicateSuppressed, Retry: time.Duration(last-since) * time.Millisecond, First: first}
	case rank == rankOperator:
		if from >= reserveMessages {
			return &Error{Code: SenderQuota, Retry: fullRetry}
		}
	case from >= int64(l.SenderMessages) && rank != rankBroker:
		return &Error{Code: SenderQuota, Retry: fullRetry}
	}
	return nil
}

// makeRoom evicts the oldest queued messages of a full mailbox until m fits. It evicts no
// leased or held message, and none of the operator or the broker, so that agents cannot
// displace these. MailboxFull: m does not fit even so.
func (j placing) makeRoom(m outgoing, peer string) (int, error) {
	x, err := j.mailboxes.box(peer)
	if err != nil {
		return 0, err
	}
	l := j.b.o.Limits
	fits := func() bool { return x.tally.open() < int64(l.MailboxMessages) && x.bytes+m.bytes <= l.MailboxBytes }
	queued, err := j.mailboxes.rows(`peer_id = ?1 AND `+isOpen+` AND seq > 0 AND state = 'queued'
		AND sender_id NOT IN (SELECT operator_id FROM mail_nodes) AND sender_id NOT IN (SELECT broker_id FROM mail_nodes) ORDER BY seq`, peer)
	if err != nil {
		return 0, err
	}
	n := 0
	for ; n < len(queued) && !fits(); n++ {
		if err := j.mailboxes.end(x, queued[n], Evicted, reasonFull, ""); err != nil {
			return n, err
		}
	}
	if !fits() {
		return n, &Error{Code: MailboxFull, Retry: fullRetry}
	}
	return n, j.mailboxes.save(x)
}

// deliver stores the delivery for a seat, with its envelope.
func (j placing) deliver(m outgoing, s seat) (Placed, error) {
	state, due, reason := Queued, j.now+m.ttl, ""
	if s.seq == 0 {
		state, due = Held, min(due, j.now+j.b.o.Limits.Hold.Milliseconds())
		j.signal(TopicHeld)
		switch {
		case s.to.Hold:
			reason = cmp.Or(s.to.Reason, reasonPolicy)
		case s.paused:
			reason = reasonPaused
		default:
			reason = reasonInbound
		}
	}
	authority := cmp.Or(s.to.Authority, AuthorityNone)
	if authority == AuthorityOperator && m.from.kind != kindOperator {
		authority = AuthorityNone // only the operator's messages have this authority
	}
	standing := lineage(m.from, sender{id: s.to.PeerID, ancestors: s.ancestors})
	msg := m.message(standing, authority)
	sig := ""
	if j.b.o.Sign != nil {
		sig = j.b.o.Sign(msg.SignedFields(s.to.PeerID)...)
	}
	if err := j.insertDelivery(m, s, state, due, j.now+m.ttl, reason, standing, authority, sig); err != nil {
		return Placed{}, err
	}
	j.change(Change{MessageID: m.id, PeerID: s.to.PeerID, To: s.to.To, From: m.from.name, After: state, Epoch: m.from.epoch, Reason: reason})
	j.signal(TopicMailbox(s.to.PeerID))
	return Placed{To: s.to.To, PeerID: s.to.PeerID, State: state, Seq: s.seq, Live: s.live, Paused: s.paused, Evicted: s.evicted}, nil
}

func (j placing) insertDelivery(m outgoing, s seat, state string, due, expires int64, reason, lineage, authority, sig string) error {
	_, err := j.Exec(`INSERT INTO deliveries (message_id, peer_id, sender_id, seq, state, due, address, from_name, thread_id, lineage,
		authority, sig, bytes, attempts, given_epoch, cut, expires_at, lease_until, changed_at, given_at, acked_at, reason, note,
		notice_seq, notice_state, notice_at, again_as)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, 0, 0, 0, ?14, 0, ?15, 0, 0, ?16, '', 0, '', 0, '')`,
		m.id, s.to.PeerID, m.from.id, s.seq, state, due, s.to.To, m.from.name, m.thread, lineage,
		authority, sig, m.bytes, expires, j.now, reason)
	if err != nil {
		return fmt.Errorf("storing a delivery: %w", err)
	}
	return nil
}
