package mail

import (
	"errors"
	"time"
)

// Codes of Error. They are stable, because callers act on them.
const (
	NotRegistered       = "NOT_REGISTERED"
	Fenced              = "FENCED"
	NameOwned           = "NAME_OWNED"
	NameInUse           = "NAME_IN_USE"
	NameInvalid         = "NAME_INVALID"
	NameReserved        = "NAME_RESERVED"
	PeerLimit           = "PEER_LIMIT"
	UnknownRecipient    = "UNKNOWN_RECIPIENT"
	RecipientRefuses    = "RECIPIENT_REFUSES"
	MailboxFull         = "MAILBOX_FULL"
	SenderQuota         = "SENDER_QUOTA"
	CursorInvalid       = "CURSOR_INVALID"
	InvalidArgument     = "INVALID_ARGUMENT"
	DuplicateSuppressed = "DUPLICATE_SUPPRESSED"
	LoopSuspected       = "LOOP_SUSPECTED"
	IdempotencyConflict = "IDEMPOTENCY_CONFLICT"
	UnknownMessage      = "UNKNOWN_MESSAGE"
	PasskeyRequired     = "PASSKEY_REQUIRED" // held messages are let in with a passkey only
	UnknownSpawn        = "UNKNOWN_SPAWN"
	SpawnDisabled       = "SPAWN_DISABLED"
	LauncherUnknown     = "LAUNCHER_UNKNOWN"
	LauncherChanged     = "LAUNCHER_CHANGED"
	RightsExceedParent  = "RIGHTS_EXCEED_PARENT"
	CwdOutsideRoots     = "CWD_OUTSIDE_ROOTS"
	DepthLimit          = "DEPTH_LIMIT"
	ChildLimit          = "CHILD_LIMIT"
	Budget              = "BUDGET"
	StoreUnavailable    = "STORE_UNAVAILABLE"
	AuditUnavailable    = "AUDIT_UNAVAILABLE"
)

// Error is a refusal of the book. The refused act has no effect, except that a
// StoreUnavailable which wraps store.ErrUncertain may have had it.
type Error struct {
	Code       string
	Retry      time.Duration // after which another attempt can succeed; 0: unknown
	Recipients []string      // the addresses that the refusal is about, of several
	First      string        // the message that a suppressed one repeats
	Err        error         // the cause; for the operator only
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Code + ": " + e.Err.Error()
	}
	return e.Code
}

func (e *Error) Unwrap() error { return e.Err }

// errSlot reports that another node took the slot at the same moment.
var errSlot = errors.New("mail: no slot for this node")

// ErrChanged is the error of a Send whose sender or recipient differs from what Recall
// returned. Nothing was done.
var ErrChanged = errors.New("mail: a peer has changed since it was read")
