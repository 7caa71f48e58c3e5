package mail

// The types of the operator's side. Desk does not check its caller; the daemon admits
// only administrators.

// Change is one state change of a delivery, for tail and trace.
type Change struct {
	ID        int64  `json:"id"`
	At        int64  `json:"at"`
	MessageID string `json:"message_id"`
	PeerID    string `json:"peer_id"`
	To        string `json:"to"`
	From      string `json:"from"`
	Before    string `json:"before"` // empty: the message was accepted
	After     string `json:"after"`
	Epoch     int64  `json:"epoch"`
	Reason    string `json:"reason,omitempty"`
}

// Envelope is a message without its text, for the operator.
type Envelope struct {
	Message
	To, PeerID, State string
	Note, Reason      string
	ChangedAt         int64
	Principal         string // the present owner of the mailbox, qualified
}

// Settled is the outcome of an act of the operator on one delivery.
type Settled struct {
	MessageID, PeerID, State string
	Seq                      int64
	NewID                    string // the id under which the message was sent again; empty otherwise
}

// Check is the outcome of Fsck. OK means that no problem was found.
type Check struct {
	OK       bool             `json:"ok"`
	Peers    int              `json:"peers"`
	Accepted int64            `json:"accepted"`
	States   map[string]int64 `json:"states"` // by state, final and open
	Problems []Problem        `json:"problems"`
	Repaired int              `json:"repaired"`
}

// Problem is one contradiction that Fsck found.
type Problem struct {
	PeerID  string `json:"peer_id,omitempty"`
	Message string `json:"message_id,omitempty"`
	Problem string `json:"problem"`
}
