package mail

// The operator's side: what `doorward agent` does. None of it asks who calls;
// the daemon lets administrators alone come here.

// Change is one state change of a delivery, for tail and trace.
type Change struct {
	ID        int64  `json:"id"`
	At        int64  `json:"at"`
	MessageID string `json:"message_id"`
	PeerID    string `json:"peer_id"`
	To        string `json:"to"`
	From      string `json:"from"`
	Before    string `json:"before"` // empty: accepted
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
	Principal         string // whose mailbox it is now, qualified
}

// Settled is what the operator did to a message.
type Settled struct {
	MessageID, PeerID, State string
	Seq                      int64
	NewID                    string // of what was sent again
}

// Check is what fsck found. OK means that nothing contradicts itself.
type Check struct {
	OK       bool             `json:"ok"`
	Peers    int              `json:"peers"`
	Accepted int64            `json:"accepted"`
	States   map[string]int64 `json:"states"` // by state, final and open
	Problems []Problem        `json:"problems"`
	Repaired int              `json:"repaired"`
}

// Problem is one contradiction.
type Problem struct {
	PeerID  string `json:"peer_id,omitempty"`
	Message string `json:"message_id,omitempty"`
	Problem string `json:"problem"`
}
