// Package mail stores agents' mail: who is registered, which messages wait, and
// what became of each.
//
// The rules of messaging are kept here, each in one statement: one binds a name,
// one fences a superseded session, one assigns a sequence number. The package
// knows neither MCP nor processes; its caller has passed the gate.
//
// Invariants: the sender of a message is the owner that the caller of Send was
// authenticated as, never an argument. An accepted message is on disk with a
// sequence number and ends in exactly one final state: for every mailbox,
// accepted = acked + rejected + expired + dead + refused + purged + evicted +
// queued + leased + held. A receipt acknowledges only messages that its own
// answer held whole. No answer reveals whether an object of another principal
// exists.
package mail

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/store"
)

// Limits bound the book; zero values are the defaults below. A
// negative Duplicate, ReplyDepth or ThreadMessages switches that check off.
type Limits struct {
	MailboxMessages int           // 1,000 open messages
	MailboxBytes    int64         // 8 MiB
	SenderMessages  int           // 100 of these from one sender
	Namespace       int           // 256 peers in a namespace
	Recipients      int           // 16
	Lease           time.Duration // 120 s, of a message
	Attempts        int           // 5 leases
	TTL             time.Duration // 24 h, of a message whose draft names none
	Hold            time.Duration // 1 h
	Session         time.Duration // 90 s: how long a session lives after its last sign
	Duplicate       time.Duration // 30 s
	ReplyDepth      int           // 32
	ThreadMessages  int           // 40 in
	ThreadTime      time.Duration // 10 min, in a thread of two
	Alias           time.Duration // 24 h
	Tombstone       time.Duration // 30 days
	Key             time.Duration // 7 days: an idempotency key
	BodyKept        time.Duration // 24 h after the final state
	Confirmed       time.Duration // 168 h: the text of a message after it was acknowledged
	RowKept         time.Duration // 7 days after it
	Keys            int           // 10,000 idempotency keys of one peer
	FormerSessions  int           // 256 of one principal
	ChildrenOpen    int           // 8 spawns of one parent
	SpawnsOpen      int           // 16 in all
	SpawnDepth      int           // 3
}

// text is how long the text of a message is kept once a delivery is in that
// final state.
func (l Limits) text(state string) time.Duration {
	if state == Acked {
		return l.Confirmed
	}
	return l.BodyKept
}

// row is how long the delivery itself is.
func (l Limits) row(state string) time.Duration { return max(l.RowKept, l.text(state)) }

// Options of a Book.
type Options struct {
	Node   string
	Limits Limits
	// Evict: a full mailbox drops its oldest queued messages
	// (agent.overflow: evict-oldest) instead of refusing the sender.
	Evict bool
	// Passkey: what is held is let in by Approve with a passkey alone. It stays held when a
	// pause ends, and what was never let in is held again when it is sent again.
	Passkey bool
	// Sign signs the fields of an envelope with the node's key, for the
	// message's Sig; nil: no signature.
	Sign func(fields ...string) string
	// Upkeep makes the record of what the book does by itself. It is required,
	// and bound to the rules of a Note.
	Upkeep Note[Upkeep]
	Log    *slog.Logger
}

// Upkeep is what the book does without a caller: leases end with their session,
// messages and names expire, rows are forgotten.
type Upkeep struct {
	What   string         // one of the words below
	Peer   string         // whose mailbox or name; empty: of several
	States map[string]int // deliveries, by the state that they are in now
	Rows   int64          // that were forgotten
	Ended  []string       // sessions, by digest
}

// The kinds of Upkeep.
const (
	UpkeepEnded     = "ended"     // leases of sessions
	UpkeepSettled   = "settled"   // deliveries that were due
	UpkeepReleased  = "released"  // the name of a peer that gave no sign of life
	UpkeepForgotten = "forgotten" // rows whose retention is over
)

// withDefaults fills in what is zero.
func (l Limits) withDefaults() Limits {
	return Limits{
		MailboxMessages: cmp.Or(l.MailboxMessages, 1000),
		MailboxBytes:    cmp.Or(l.MailboxBytes, 8<<20),
		SenderMessages:  cmp.Or(l.SenderMessages, 100),
		Namespace:       cmp.Or(l.Namespace, 256),
		Recipients:      cmp.Or(l.Recipients, 16),
		Lease:           cmp.Or(l.Lease, 120*time.Second),
		Attempts:        cmp.Or(l.Attempts, 5),
		TTL:             cmp.Or(l.TTL, 24*time.Hour),
		Hold:            cmp.Or(l.Hold, time.Hour),
		Session:         cmp.Or(l.Session, 90*time.Second),
		Duplicate:       cmp.Or(l.Duplicate, 30*time.Second),
		ReplyDepth:      cmp.Or(l.ReplyDepth, 32),
		ThreadMessages:  cmp.Or(l.ThreadMessages, 40),
		ThreadTime:      cmp.Or(l.ThreadTime, 10*time.Minute),
		Alias:           cmp.Or(l.Alias, 24*time.Hour),
		Tombstone:       cmp.Or(l.Tombstone, 30*24*time.Hour),
		Key:             cmp.Or(l.Key, 7*24*time.Hour),
		BodyKept:        cmp.Or(l.BodyKept, 24*time.Hour),
		Confirmed:       cmp.Or(l.Confirmed, 7*24*time.Hour),
		RowKept:         cmp.Or(l.RowKept, 7*24*time.Hour),
		Keys:            cmp.Or(l.Keys, 10_000),
		FormerSessions:  cmp.Or(l.FormerSessions, 256),
		ChildrenOpen:    cmp.Or(l.ChildrenOpen, 8),
		SpawnsOpen:      cmp.Or(l.SpawnsOpen, 16),
		SpawnDepth:      cmp.Or(l.SpawnDepth, 3),
	}
}

// Book is the mail of one database. Its methods may be called at once, and by
// several daemons on one PostgreSQL.
type Book struct {
	db *store.DB
	o  Options

	ids    ids
	ticker ticker

	operator, broker sender       // of this node
	tidied           atomic.Int64 // when names and other slow things were last swept
}

// Open is the book in db, which was opened with Migrations. Sessions of an
// earlier run of this node are dead from here on; one that is still there
// lives again with its next act.
func Open(ctx context.Context, db *store.DB, o Options) (*Book, error) {
	if o.Node == "" {
		return nil, errors.New("mail: a node has a name")
	}
	if o.Upkeep == nil {
		return nil, errors.New("mail: a book has a recorder of its upkeep")
	}
	o.Limits = o.Limits.withDefaults()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	b := &Book{db: db, o: o}
	for range 10 {
		// Two nodes that open at once can pick one slot: one of them tries again.
		err := b.mark(ctx, b.settleIn)
		if errors.Is(err, errSlot) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("opening the mail of %s: %w", o.Node, err)
		}
		return b, nil
	}
	return nil, errSlot
}

// Desk is the operator's side of a book: the operator's own messages, and what
// the operator does with those of others.
type Desk struct{ b *Book }

// Desk returns the operator's side.
func (b *Book) Desk() Desk { return Desk{b} }

// Note makes, of what an operation is about to have done, the audit record
// that must be on disk before it is committed (store.Tx.Note). It may be
// called more than once, and must not keep v. An operation whose Note is nil, or
// gives nil, fails with AuditUnavailable and does nothing.
type Note[T any] func(v *T) any

func noted[T any](j *job, note Note[T], v *T) error {
	if note == nil {
		return store.ErrUnrecorded
	}
	record := note(v)
	if record == nil {
		return store.ErrUnrecorded
	}
	j.Note(record)
	return nil
}

// perform runs act in a transaction, passes its result to note, and returns it.
func perform[T any](ctx context.Context, b *Book, note Note[T], act func(*job) (*T, error)) (*T, error) {
	var out *T
	err := b.write(ctx, func(j *job) (err error) {
		if out, err = act(j); err != nil {
			return err
		}
		return noted(j, note, out)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
