package mail

// Inbound modes: what a peer wants of messages that policy lets through.
const (
	InboundPolicy = "policy"
	InboundAccept = "accept"
	InboundHold   = "hold"
	InboundRefuse = "refuse"
)

// Lineage is how a peer stands to another one, by spawn records alone.
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

// Owner is who acts: a principal in one session of one node.
type Owner struct {
	Principal string // qualified: Qualify(node, name)
	Session   string // a digest, never an id
	Node      string
	Grade     string // attested or verified
	Spawn     string // the spawn whose agent this is; empty for others
	// Processes are the process that connected and the direct parent of a
	// shim, as the peer package names process instances; kept with the peer
	// for Agents.
	Processes []string
}

// Qualify names a principal of a node for the whole database: a uid means
// something on one kernel only.
func Qualify(node, principal string) string { return node + " " + principal }

// Operator is the name of every node's operator, whose mailbox any peer may
// write to. It is reserved.
const Operator = "operator"

// Peer is one row: an address, who owns it, and since when.
type Peer struct {
	ID, Name, Namespace string
	Principal           string // qualified
	Session, Node       string
	Grade               string
	Epoch               int64
	LeaseUntil          int64 // milliseconds since 1970; live while in the future
	LastSeen            int64
	Display, Summary    string
	Inbound             string
	Labels              map[string]string
	Spawn               string // the spawn that it is the agent of
	Paused              bool   // by the operator: all inbound is held
	Live                bool   // LeaseUntil against the clock of the store

	// Ancestors are the peers that started it, its parent first, by the
	// records of spawns. They are written when it is entered and never change.
	Ancestors []string
	// Lineage is how this peer stands to the one that asked.
	Lineage string
	// Pending and Held are filled in for the operator alone.
	Pending, Held int

	kind string
}

// Registration is what register asks for. An empty name keeps the present
// one, or makes one.
type Registration struct {
	Name, Namespace  string
	Display, Summary string
	Inbound          string
	Labels           map[string]string
	// Set says which of Display, Summary, Inbound and Labels were given.
	SetDisplay, SetSummary, SetInbound, SetLabels bool
}

// Registered is the outcome.
type Registered struct {
	Peer     Peer
	Created  bool
	Renamed  string // the name before, when it changed
	Takeover *Takeover
	Counts   Counts
}

// Takeover says what a new session inherited.
type Takeover struct {
	PrevEpoch       int64
	Inherited, Held int
}

// Released is the outcome of Unregister.
type Released struct {
	Peer     Peer
	Released bool
	Pending  int // messages that expired with it
}
