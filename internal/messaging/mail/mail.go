// Package mail stores agents' mail: the registered peers, the messages, and the state of
// each delivery.
//
// The rules of messaging are kept here, each in one statement: one binds a name, one
// fences a superseded session, one assigns a sequence number. The package knows neither
// MCP nor processes; its caller has passed the gate.
//
// Invariants: the sender of a message is the authenticated owner that the caller passes
// to Send, never an argument of the agent. An accepted message is on disk, has a sequence
// number from the moment it is queued, and ends in exactly one final state: for every
// mailbox, accepted = acked + rejected + expired + dead + refused + purged + evicted +
// queued + leased + held. A receipt acknowledges only messages that its own answer held
// whole. No answer reveals whether an object of another principal exists.
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

// Limits bound the book; a zero value means the default stated with the field. A negative
// Duplicate, ReplyDepth or ThreadMessages switches that check off.
type Limits struct {
	MailboxMessages int           // 1,000 open messages in a mailbox
	MailboxBytes    int64         // 8 MiB of bodies of open messages in a mailbox
	SenderMessages  int           // 100 open messages of one sender in a mailbox
	Namespace       int           // 256 agents in a namespace
	Recipients      int           // 16 recipients of a message
	Lease           time.Duration // 120 s: the lease of a message
	Attempts        int           // 5 leases of a message
	TTL             time.Duration // 24 h: the life of a message whose draft sets none
	Hold            time.Duration // 1 h: how long a message is held
	Session         time.Duration // 90 s: the lease of a session after its last sign of life
	Duplicate       time.Duration // 30 s: the time in which the same body is a repeat
	ReplyDepth      int           // 32 replies in a chain
	ThreadMessages  int           // 40 messages of two peers in a thread within ThreadTime
	ThreadTime      time.Duration // 10 min
	Alias           time.Duration // 24 h: an alias
	Tombstone       time.Duration // 30 days: a tombstone
	Key             time.Duration // 7 days: an idempotency key
	BodyKept        time.Duration // 24 h: the text of a message, after a final state other than acked
	ConfirmedKept   time.Duration // 168 h: the text of a message, after its acknowledgement
	RowKept         time.Duration // 7 days: a delivery's row after its final state, and other rows
	Keys            int           // 10,000 idempotency keys of one peer
	FormerSessions  int           // 256 former sessions of one principal
	ChildrenOpen    int           // 8 open spawns of one parent
	SpawnsOpen      int           // 16 open spawns of the node
	SpawnDepth      int           // 3 levels of spawns
}

// text returns how long the text of a message is kept after a delivery came to the final
// state.
func (l Limits) text(state string) time.Duration {
	if state == Acked {
		return l.ConfirmedKept
	}
	return l.BodyKept
}

// row returns how long the row of a delivery is kept after it came to the final state.
func (l Limits) row(state string) time.Duration { return max(l.RowKept, l.text(state)) }

// Options configure a Book.
type Options struct {
	Node   string
	Limits Limits
	// Evict: a full mailbox drops its oldest queued messages
	// (agent.overflow: evict-oldest) instead of refusing the sender.
	Evict bool
	// Passkey: held messages are let in only by Approve with a passkey. They stay held
	// when a pause ends, and a message that was never let in is held again when it is
	// sent again.
	Passkey bool
	// Sign signs the fields of an envelope with the node's key, for the
	// message's Sig; nil: no signature.
	Sign func(fields ...string) string
	// Upkeep makes the record of what the book does without a caller. It is required, and
	// the rules of Note apply to it.
	Upkeep Note[Upkeep]
	Log    *slog.Logger
}

// Upkeep describes a change that the book makes without a caller: leases end with their
// session, messages and names expire, rows are deleted.
type Upkeep struct {
	What   string         // one of the words below
	Peer   string         // the owner of the mailbox or name; empty: several
	States map[string]int // deliveries, by the state that they are in now
	Rows   int64          // deleted rows
	Ended  []string       // sessions, by digest
}

// The kinds of Upkeep.
const (
	UpkeepEnded     = "ended"     // leases of sessions
	UpkeepSettled   = "settled"   // deliveries that were due
	UpkeepReleased  = "released"  // the name of a peer that gave no sign of life
	UpkeepForgotten = "forgotten" // rows whose retention is over
)

// withDefaults replaces zero values by the defaults.
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
		ConfirmedKept:   cmp.Or(l.ConfirmedKept, 7*24*time.Hour),
		RowKept:         cmp.Or(l.RowKept, 7*24*time.Hour),
		Keys:            cmp.Or(l.Keys, 10_000),
		FormerSessions:  cmp.Or(l.FormerSessions, 256),
		ChildrenOpen:    cmp.Or(l.ChildrenOpen, 8),
		SpawnsOpen:      cmp.Or(l.SpawnsOpen, 16),
		SpawnDepth:      cmp.Or(l.SpawnDepth, 3),
	}
}

// Book is the mail of one database. Its methods are safe for concurrent use, also by
// several daemons on one PostgreSQL.
type Book struct {
	// Known holds peers that Resolve has read.
	Known Memory

	db *store.DB
	o  Options

	ids    ids
	ticker ticker

	operator, broker sender       // of this node
	tidied           atomic.Int64 // the time of the last tidy, in milliseconds
}

// Open returns the book in db, which was opened with Migrations. It ends the leases of
// sessions of an earlier run of this node; a session that still exists renews its lease
// with its next act.
func Open(ctx context.Context, db *store.DB, o Options) (*Book, error) {
	if o.Node == "" {
		return nil, errors.New("mail: a node needs a name")
	}
	if o.Upkeep == nil {
		return nil, errors.New("mail: a book needs a recorder for its maintenance")
	}
	o.Limits = o.Limits.withDefaults()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	b := &Book{db: db, o: o}
	for range 10 {
		// Two nodes that open at the same time can pick the same slot: one of them tries
		// again.
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

// Desk is the operator's side of a book: it sends the operator's own messages, and
// manages the messages and peers of agents.
type Desk struct{ b *Book }

// Desk returns the operator's side.
func (b *Book) Desk() Desk { return Desk{b} }

// Note makes the audit record of an operation from its result v. The record must be on
// disk before the operation is committed (store.Tx.Note). It may be called more than
// once, and must not keep v. An operation whose Note is nil, or returns nil, fails with
// AuditUnavailable and changes nothing.
type Note[T any] func(v *T) any

// noted adds the record of v to the job.
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
