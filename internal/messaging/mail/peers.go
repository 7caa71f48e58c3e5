package mail

// Inbound modes: how a peer takes messages that policy permits.
const (
	InboundPolicy = "policy"
	InboundAccept = "accept"
	InboundHold   = "hold"
	InboundRefuse = "refuse"
)

// Lineages: the relation of a peer to another one, by spawn records only.
const (
	LineageSelf       = "self"
	LineageParent     = "parent"
	LineageChild      = "child"
	LineageSibling    = "sibling"
	LineageAncestor   = "ancestor"
	LineageDescendant = "descendant"
	LineageUnrelated  = "unrelated"
	LineageOperator   = "operator"
	LineageBroker     = "broker"
)

// Owner is the caller of an operation: a principal in one session of one node.
type Owner struct {
	Principal string // qualified (Qualify)
	Session   string // a digest, never an id
	Node      string
	Grade     string // attested or verified
	Spawn     string // the spawn whose agent calls; empty: not a spawned agent
	// Processes are the process that connected and the direct parent of a shim, in the
	// notation of package peer; kept with the session for Agents.
	Processes []string
}

// Qualify returns the name of a node's principal that is unique in the database. The node
// is part of it because a uid has a meaning on one kernel only.
func Qualify(node, principal string) string { return node + " " + principal }

// Operator is the name of every node's operator, to whose mailbox any peer may write. It
// is reserved.
const Operator = "operator"

// Peer is a registered peer: an address, its owner, and its state.
type Peer struct {
	ID, Name, Namespace string
	Principal           string // qualified
	Session, Node       string
	Grade               string
	Epoch               int64
	LeaseUntil          int64 // milliseconds since 1970; the session is live until then
	LastSeen            int64
	Display, Summary    string
	Inbound             string
	Labels              map[string]string
	Spawn               string // the spawn whose agent it is; empty: none
	Paused              bool   // by the operator: new messages are held
	Live                bool   // LeaseUntil is in the future by the clock of the store

	// Ancestors are the peers above it by the records of spawns, its parent first. They
	// are written when it is entered and never change.
	Ancestors []string
	// Lineage is the relation of this peer to the peer that asked.
	Lineage string
	// Pending and Held are filled in for the operator only.
	Pending, Held int

	kind string
}

// Registration holds the arguments of Register. An empty name keeps the present one, or
// makes one.
type Registration struct {
	Name, Namespace  string
	Display, Summary string
	Inbound          string
	Labels           map[string]string
	// Former is the session whose peer the caller takes over, and none other; empty: any.
	// Name and Namespace are not used then, and no peer is made.
	Former string
	// The Set fields report which of Display, Summary, Inbound and Labels were given.
	SetDisplay, SetSummary, SetInbound, SetLabels bool
}

// Registered is the outcome of Register.
type Registered struct {
	Peer     Peer
	Created  bool
	Renamed  string // the former name, if it changed
	Takeover *Takeover
	Counts   Counts
}

// Takeover describes what a new session inherited.
type Takeover struct {
	PrevEpoch       int64
	Inherited, Held int
}

// Released is the outcome of Unregister.
type Released struct {
	Peer     Peer
	Released bool
	Pending  int // the messages that expired with the name
}
