package listen

import "github.com/doorward/doorward/internal/downstream/attest"

// The reasons for refusing a connection, as reported to OnRefused.
const (
	ReasonOtherUser     = "the Unix peer is another user"
	ReasonUnattested    = "the Unix peer could not be attested"
	ReasonForeign       = "the Unix peer is in another pid or mount namespace"
	ReasonOwnChild      = "the Unix peer was started by the daemon itself"
	ReasonOwnSocket     = "the loopback socket is held by a server of the daemon"
	ReasonOtherOwner    = "the loopback socket belongs to another user"
	ReasonNoOwner       = "no user was found for the loopback socket"
	ReasonNoHolder      = "no process was found that holds the loopback socket"
	ReasonTooMany       = "too many connections on the listener"
	ReasonTooManyHere   = "too many connections from one address"
	ReasonTooManyOfUser = "too many connections of other users of this machine"
	ReasonAcceptFailed  = "accepting failed"
)

// The reasons for closing a connection of the Unix socket later, because of its data. A
// loopback connection is closed later for ReasonNoHolder or ReasonOwnSocket.
const (
	ReasonOtherWriter = attest.BreachWriter
	ReasonNoWriter    = attest.BreachUnattested
	ReasonCutOff      = attest.BreachTruncated
	ReasonDescriptors = attest.BreachDescriptors
	ReasonDeadWriter  = attest.BreachDead
)

var reasons = [...]string{ReasonOtherUser, ReasonUnattested, ReasonForeign, ReasonOwnChild, ReasonOwnSocket, ReasonOtherOwner,
	ReasonNoOwner, ReasonNoHolder, ReasonTooMany, ReasonTooManyHere, ReasonTooManyOfUser, ReasonAcceptFailed,
	ReasonOtherWriter, ReasonNoWriter, ReasonCutOff, ReasonDescriptors, ReasonDeadWriter}
