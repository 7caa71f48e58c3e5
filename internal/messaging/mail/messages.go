package mail

import "strconv"

// States of a delivery. The last seven are final (isFinal).
const (
	Held     = "held"
	Queued   = "queued"
	Leased   = "leased"
	Acked    = "acked"
	Rejected = "rejected"
	Expired  = "expired"
	Dead     = "dead"
	Refused  = "refused"
	Purged   = "purged"
	Evicted  = "evicted"
)

// Authorities of a message.
const (
	AuthorityNone      = "none"
	AuthorityDelegated = "delegated"
	AuthorityOperator  = "operator"
)

// Ref is a link in a message. The broker never opens it.
type Ref struct {
	URI    string `json:"uri"`
	SHA256 string `json:"sha256,omitempty"`
	Size   int64  `json:"size,omitempty"`
}

// Recipient is one addressee of a draft. The caller has resolved it and decided about it.
type Recipient struct {
	To        string // the address as it was written
	PeerID    string
	Principal string // the owner of PeerID then; if it has changed, Send answers UnknownRecipient
	Lineage   string // not read: Send takes the lineage from the spawn records
	Hold      bool   // policy or the recipient wants the message held
	Reason    string // why it is held: a constant word
	Authority string
	As        *Peer // what Recall returned; Send compares it. nil: PeerID was resolved
}

// Draft is a message to send: its text is cleaned, its form valid by the schema.
type Draft struct {
	To                  []Recipient
	From                *Peer // the sender as Recall returned it; Send compares it. nil: it is read
	Body, Subject, Kind string
	Thread, ReplyTo     string
	TTL                 int64 // seconds; 0: the default
	Refs                []Ref
	Key                 string // idempotency key; empty: none
	Fingerprint         []byte // of all arguments, for the key
	Cleaned             int
}

// Sent is the outcome of Send.
type Sent struct {
	From        Peer
	MessageID   string
	Thread      string
	Replay      bool
	AcceptedAt  int64
	Cleaned     int
	ConfirmedID string // the id of the message that it answers, if that was not final yet
	Deliveries  []Placed
}

// Placed is one delivery of a sent message. Live reports whether the recipient's session
// is live.
type Placed struct {
	To, PeerID, State string
	Seq               int64 // 0: held, so it has none yet
	Live, Paused      bool
	Evicted           int
}

// Receipt is the content of a cursor: it says which messages an answer of Inbox held
// whole. A client that shows the cursor has received that answer, so these messages are
// acknowledged. They are those up to Seq that were not acknowledged yet; with a Thread,
// those of that thread alone. A receipt covers no message of an earlier or later answer,
// because that one may have been lost. Seq is 0 for an answer that held no message or
// whose message was cut: such a receipt covers none. Notice is the last notice that the
// answer held.
type Receipt struct {
	PeerID string
	Epoch  int64
	Seq    int64
	Notice int64
	Thread string
}

// Fetch holds the arguments of Inbox.
type Fetch struct {
	After    *Receipt // the receipt to apply; nil: none
	Max      int
	MaxBytes int // of bodies
	Thread   string
	Peek     bool // neither acknowledge nor lease
	Quiet    bool // an empty answer is not recorded, because the caller repeats the call
}

// Message is a delivered message with its envelope. Times are milliseconds.
type Message struct {
	ID, Thread, ReplyTo string
	Seq                 int64
	Kind, Subject, Body string
	BodyBytes           int // of the whole body; Body may be cut
	BodySHA256          string
	Truncated           bool
	Refs                []Ref
	From                From
	Authority           string
	SentAt, ExpiresAt   int64
	Attempt             int  // the number of leases
	Again               bool // it was given before, under the same lease
	LeaseExpiresAt      int64
	Sig                 string
}

// From describes the sender as the daemon knew it at the time of sending.
type From struct {
	PeerID, Name, Namespace string
	Principal               string // qualified
	Grade                   string
	Epoch                   int64
	Lineage                 string
}

// Missed counts the messages that a recipient did not get, by their final state.
type Missed struct{ Evicted, Expired, Dead, Refused, Purged int }

// Notice tells a sender the state of a message.
type Notice struct {
	MessageID, To, State string
	At                   int64
	Reason, Note         string
}

// Counts describe a mailbox. Notices holds those not yet covered by a receipt, at most
// 100.
type Counts struct {
	Pending, Held int
	Missed        Missed
	Newest        int64 // the highest seq of an unacknowledged message; 0: none
	Notices       []Notice
	Receipt       Receipt // of the answer that they are part of
}

// Batch is the outcome of Inbox.
type Batch struct {
	Peer     Peer
	Messages []Message
	More     bool
	Acked    int // by the receipt
	Counts   Counts
}

// Pointer describes a waiting message without its content.
type Pointer struct {
	MessageID, From, Lineage, Kind string
	Seq, SentAt                    int64
}

// Confirmed is the outcome of Ack. A repeated id counts once.
type Confirmed struct {
	Peer    Peer
	Acked   int      // number of IDs
	Already int      // messages that were in a final state before, of any kind; they keep it
	Unknown []string // ids of messages that the peer was not given
	IDs     []string // the messages that this call acknowledged or rejected
}

// Delivery is the state of one delivery, for its sender.
type Delivery struct {
	To, State                   string
	Attempts                    int
	ChangedAt, GivenAt, AckedAt int64 // 0: not yet
	Reason, Note                string
}

// SignedFields returns the fields of a message that Options.Sign signs, in this order.
// The signature proves what this daemon recorded, not that the body is true.
func (m Message) SignedFields(recipientPeerID string) []string {
	return []string{
		m.ID, recipientPeerID, strconv.FormatInt(m.SentAt, 10), m.BodySHA256,
		m.From.PeerID, m.From.Name, m.From.Namespace, m.From.Principal, m.From.Grade, strconv.FormatInt(m.From.Epoch, 10),
		m.From.Lineage, m.Authority, "data",
	}
}
