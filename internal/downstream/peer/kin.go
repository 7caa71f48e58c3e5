package peer

// NoLogin is the login of a process that no login started, or whose login is unknown.
const NoLogin = ^uint32(0)

// Kin describes one process of a chain that Ancestors returned, with facts about how it
// came below its parent. All of it is observed: it may be used to refuse, never to allow.
type Kin struct {
	Instance string
	PID      int32
	Start    uint64 // in the ticks of Instance
	// Name is the name that the process gives itself, as in Process.
	Name    string
	Session int32 // the leader of its session
	// Terminal is the device of its controlling terminal; 0: none.
	Terminal uint64
	// Login is the kernel's number (audit session) of the login that the process descends
	// from. It is inherited, and a process changes it only with rights over the audit
	// system.
	Login uint32
}

// Leads reports whether the process leads its session.
func (k Kin) Leads() bool { return k.Session == k.PID }
