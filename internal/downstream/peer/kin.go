package peer

// NoLogin is the login of a process that no login began, and of one whose login the
// system does not tell.
const NoLogin = ^uint32(0)

// Kin is one process of a chain that Ancestors returned, with what tells how it came
// below its parent. All of it is observed: it may refuse and never allow.
type Kin struct {
	Instance string
	PID      int32
	Start    uint64 // in the ticks of Instance
	// Name is what the process calls itself, as in Process.
	Name    string
	Session int32 // the leader of its session
	// Terminal is the device of its controlling terminal; 0: none.
	Terminal uint64
	// Login is the kernel's number of the login that it descends from: it is inherited,
	// and no process changes it without rights over the audit system once it is set.
	Login uint32
}

// Leads reports whether the process leads its session.
func (k Kin) Leads() bool { return k.Session == k.PID }
