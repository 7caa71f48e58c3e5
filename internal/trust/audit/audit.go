// Package audit keeps the record of decisions and acts: an append-only log of JSON
// lines in which changes can be detected.
//
// Invariant: before an act there is a record, and without a record there is no act: Append
// returns nil when the line is in the file. An error wraps ErrUnavailable; then nothing
// was recorded, and the caller must not continue with the act.
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
// The first record of a caller in a segment has facts and session. Later records of
// that caller may have the member as instead: the seq of a record of the same segment
// that has both. Every reader puts them back, except Export, which copies the lines of the files.
//
// seq counts from 1 without a gap, over segments and restarts. prev is the hash
// of the line before; in the first line it is Genesis, 64 zeros. hash is the
// SHA-256, in lower-case hex, of all bytes of its line before `,"hash":`. Quotes
// inside strings are escaped, so that this text occurs once in a line and can be
// found without a JSON parser. To check line 7 by hand:
//
//	sed -n '7s/,"hash":.*//p' 00000001.jsonl | tr -d '\n' | sha256sum
//
// Characters that cannot be printed are escaped in the texts of a line, and a text is
// cut at 512 bytes with the mark `…[cut]`.
//
// The file checkpoints holds signed notes in the form of C2SP signed-note, with
// an empty line after each: origin, number of records, base64 of the raw hash of
// the last of them (the chain's hash, not a Merkle root), and an extension line
// `time …`, signed with ed25519. A checkpoint is written before the first record, every
// CheckpointEvery while records are appended, at rotation and at Close.
//
// When the oldest segments were removed, the file begin holds a signed note about their
// last record: origin, number of records, base64 of the hash, lines `time …` and
// `segment …`. The first remaining record continues the chain from it. Segments up to
// that number are not part of the log, even where an interrupted removal left them.
//
// # Detection of changes
//
// Verify finds every changed, missing, added or exchanged byte of the records between the
// beginning and the last checkpoint. An earlier checkpoint that was removed or repeated is
// not found: the later ones cover the same records. After the last checkpoint it finds a change unless
// all following lines were rewritten to match. That log and checkpoints were removed
// together, or rolled back to an older copy, can be found only with a Mark that was kept
// elsewhere. An attacker who holds the signing key, or can roll back that place too, can
// rewrite what is on this machine; only a checkpoint stored on another machine shows it.
//
// A failed write is cut off again, and its records are not part of the chain.
// A failed fsync is final for this Log, with either sync setting: the kernel may
// have dropped the data that it could not write and reports success the next time, so
// only an operator who examined the disk should start again. So is the removal, replacement
// or shortening of the segment, which is noticed at the next sync, and the removal or
// shortening of the checkpoints, which is noticed at the next checkpoint.
package audit

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

// Values of Record.Kind and Record.Decision.
const (
	Decision = "decision" // the decision about an act, written before it
	Outcome  = "outcome"  // how an allowed act ended
	Event    = "event"    // an event of the daemon or of one of its listeners

	Allow = "allow"
	Deny  = "deny"
)

// Record is the content of one record. Its texts are constants of Doorward or names;
// never a body, an argument, a result, a token or a part of one. Empty members
// are left out of the line.
type Record struct {
	Kind, Source     string               // decision, outcome or event; gate, listen, auth, …
	Who              *principal.Principal // may be nil
	Session          string               // a digest, never the id itself
	Action, Resource string               // from callers: escaped, and cut at MaxText bytes
	Decision, Rule   string               // allow or deny, and the rule that decided
	Result           string               // of an outcome: ok, error, cancelled, timeout, …
	Bytes            int64
	Ref              uint64 // seq of a related record: the decision of an outcome, the approval of a decision
	Count            int64  // number of events that this record stands for, or of servers of the act; 0: one
	Reason           string // constant text for the operator, never from a caller
	Detail           []Field
}

// Field is one named detail of a record. Name is a constant of Doorward; Value is an
// id, a number, a digest or a name, escaped and cut like every other text. If two
// fields have the same name, only the first is recorded.
type Field struct{ Name, Value string }

const (
	// MaxText is the most bytes of one text in a line; longer text is cut.
	MaxText = 512
	// MaxFacts is the most bytes of facts in a line. Longer facts are not cut: a
	// placeholder stands for all of them.
	MaxFacts = 16 << 10
	// MaxLine is the most bytes of a line, including the newline.
	MaxLine = 64 << 10
	// Genesis is the prev of the first record.
	Genesis = "0000000000000000000000000000000000000000000000000000000000000000"
)

var (
	// ErrUnavailable is wrapped by every error of Append, which has then recorded
	// nothing, and of AppendGroup.
	ErrUnavailable = errors.New("audit log unavailable")
	// ErrLocked means that another process writes to this log.
	ErrLocked = errors.New("audit log is in use by another process")
	// ErrDamaged means that Open or a reader found a contradiction in the part of
	// the log that it depends on; Verify gives details.
	ErrDamaged = errors.New("audit log is damaged")
)

// Options configures a log. The zero value is usable and means no
// checkpoints.
type Options struct {
	Always          bool          // fdatasync before Append returns, once for each group
	Interval        time.Duration // without Always: time between syncs while there are new records; default 100 ms
	SegmentBytes    int64         // a segment that would grow beyond this is closed; default 64 MiB
	CheckpointEvery time.Duration // default 1 minute
	Key             *Key          // signs checkpoints; nil: none are written
	Rotated         func()        // called after a segment was closed; must not block; may be nil
	Checkpointed    func(Mark)    // called with each checkpoint on the disk; must not block; may be nil
	Log             *slog.Logger  // default: discards
	Now             func() time.Time
}

// Values of State.State.
const (
	StateOK     = "ok"
	StateFull   = "full"   // no space; the next Append tries again
	StateFailed = "failed" // a write or a sync failed for another reason than space; see Reason
)

// State is the condition of the log.
type State struct {
	Seq     uint64 `json:"seq"`               // the last record in the file
	State   string `json:"state"`             // StateOK, StateFull or StateFailed
	Reason  string `json:"reason,omitempty"`  // why not ok, for the operator
	Refused uint64 `json:"refused,omitempty"` // Appends that failed since the log was last ok
	Lost    uint64 `json:"lost,omitempty"`    // Later records given up since then
}

func (o Options) withDefaults() Options {
	o.Interval = cmp.Or(o.Interval, 100*time.Millisecond)
	o.SegmentBytes = cmp.Or(o.SegmentBytes, 64<<20)
	o.CheckpointEvery = cmp.Or(o.CheckpointEvery, time.Minute)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}
