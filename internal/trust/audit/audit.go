// Package audit keeps the record of what was decided and done: an append-only
// log of JSON lines that cannot be altered in silence.
//
// Invariant: before an act there is a record, and without a record there is no act: Append
// returns when the line is in the file, or with an error that wraps
// ErrUnavailable, and then nothing was recorded and the caller must not go on.
//
// # Format
//
// The directory holds the segments 00000001.jsonl, 00000002.jsonl, …; together
// they are one sequence of lines. A line is one JSON object without white space
// outside strings, of at most MaxLine bytes, with these members in this order,
// the empty ones left out:
//
//	seq, time, kind, source, principal, facts, session, action, resource,
//	decision, rule, result, bytes, count, reason, detail, ref, prev, hash
//
// Of the records of one caller in a segment the first has facts and session;
// the others may have the member as in their place, the seq of a record of that segment
// that has them. Everything that reads records puts them back, apart from Export, whose
// lines are those of the files.
//
// seq counts from 1 without a gap, over segments and restarts. prev is the hash
// of the line before; in the first line it is Genesis, 64 zeros. hash is the
// SHA-256, in lower-case hex, of every byte of its line that stands before
// `,"hash":`. Quotes inside strings are escaped, so that text occurs once in a
// line and needs no JSON parser to be found. To check line 7 by hand:
//
//	sed -n '7s/,"hash":.*//p' 00000001.jsonl | tr -d '\n' | sha256sum
//
// Nothing of a caller's that cannot be printed stands raw in a line; it is
// escaped, and text is cut at 512 bytes with the mark `…[cut]`.
//
// The file checkpoints holds signed notes in the form of C2SP signed-note, with
// an empty line after each: origin, number of records, base64 of the raw hash of
// the last of them (the chain's hash, not a Merkle root), and an extension line
// `time …`, signed with ed25519. One is written before the first record, every
// CheckpointEvery while records come, at rotation and at Close.
//
// Where the oldest segments were removed, the file begin holds a signed note about
// the last record of them: origin, number of records, base64 of the hash, lines
// `time …` and `segment …`. The first record there continues that one. Segments up
// to that number are no part of the log; a removal that was interrupted leaves them.
//
// # What it withstands
//
// Verify finds every changed, missing, added or exchanged byte between the
// beginning and the last checkpoint, and behind it every one that was not followed by a rewriting
// of all the lines after it. A log and checkpoints that were removed together, or
// rolled back to an older copy, it finds with a Mark that was kept elsewhere.
// Whoever holds the signing key, or can roll that place back too, can rewrite
// what is on this machine; against them a checkpoint must have left it.
//
// A write that fails is cut off again and its records are no part of the chain.
// A failed fsync is final for this Log, with either sync setting: the kernel may
// have dropped what it could not write and will report success the next time, so
// only an operator who looked at the disk should start again.
package audit

import (
	"errors"
	"log/slog"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

// Values of Record.Kind and Record.Decision.
const (
	Decision = "decision" // may an act happen: written before it
	Outcome  = "outcome"  // how an allowed act ended
	Event    = "event"    // what happened to the daemon or at its door

	Allow = "allow"
	Deny  = "deny"
)

// Record is what a caller wants recorded. Texts are constants of ours or names;
// never a body, an argument, a result, a token or a part of one. Empty members
// are left out of the line.
type Record struct {
	Kind, Source     string               // decision, outcome or event; gate, listen, auth, …
	Who              *principal.Principal // may be nil
	Session          string               // a digest, never the id itself
	Action, Resource string               // from callers: escaped, and cut at MaxText bytes
	Decision, Rule   string               // allow or deny, and what said so
	Result           string               // of an outcome: ok, error, cancelled, timeout, …
	Bytes            int64
	Ref              uint64 // of an outcome: the seq of its decision
	Count            int64  // how many equal events this one sums up
	Reason           string // constant text for the operator, never of a caller
	Detail           []Field
}

// Field is one named detail of a record; of two of one name the first counts.
// Name is a constant of ours, Value an
// id, a number, a digest or a name, escaped and cut like every other text.
type Field struct{ Name, Value string }

const (
	// MaxText is how many bytes of each text a line keeps.
	MaxText = 512
	// MaxFacts is how many bytes of facts a line keeps; more are replaced whole.
	MaxFacts = 16 << 10
	// MaxLine is the length that no line exceeds, the newline included.
	MaxLine = 64 << 10
	// Genesis is the prev of the first record.
	Genesis = "0000000000000000000000000000000000000000000000000000000000000000"
)

var (
	// ErrUnavailable is wrapped by every error of Append: nothing was recorded.
	ErrUnavailable = errors.New("audit log unavailable")
	// ErrLocked says that another process writes to this log.
	ErrLocked = errors.New("audit log is in use by another process")
	// ErrDamaged says that the log contradicts itself where Open or a reader had
	// to trust it; Verify says more.
	ErrDamaged = errors.New("audit log is damaged")
)

// Options says how a log is kept. The zero value is usable and means no
// checkpoints.
type Options struct {
	Always          bool          // fdatasync before Append returns, once for each group
	Interval        time.Duration // otherwise fdatasync this often while there is something new; default 100 ms
	SegmentBytes    int64         // a segment that would grow beyond this is closed; default 64 MiB
	CheckpointEvery time.Duration // default 1 minute
	Key             *Key          // signs checkpoints; nil: none are written
	Rotated         func()        // is called when a segment was closed; must not block; nil: nobody is
	Checkpointed    func(Mark)    // hears of each checkpoint on the disk; must not block; nil: nobody does
	Log             *slog.Logger  // default: discards
	Now             func() time.Time
}

// Values of State.State.
const (
	StateOK     = "ok"
	StateFull   = "full"   // no space; the next Append tries again
	StateFailed = "failed" // the disk refuses; Reason says whether trying again helps
)

// State is how the log is doing.
type State struct {
	Seq     uint64 `json:"seq"`               // the last record in the file
	State   string `json:"state"`             // StateOK, StateFull or StateFailed
	Reason  string `json:"reason,omitempty"`  // why not ok, for the operator
	Refused uint64 `json:"refused,omitempty"` // Appends that failed since the log was last ok
	Lost    uint64 `json:"lost,omitempty"`    // Later records given up since then
}

func (o Options) withDefaults() Options {
	if o.Interval <= 0 {
		o.Interval = 100 * time.Millisecond
	}
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = 64 << 20
	}
	if o.CheckpointEvery <= 0 {
		o.CheckpointEvery = time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}
