package mail

// States of a spawn.
const (
	Starting   = "starting"
	Running    = "running"
	Exited     = "exited"
	Killed     = "killed"
	TimedOut   = "timeout"
	OverBudget = "over_budget"
	Failed     = "failed"
)

// Spawn is one started agent.
type Spawn struct {
	ID, Launcher         string
	Node                 string
	Parent               string // peer id
	ParentPrincipal      string // qualified
	ParentSession        string
	Peer                 string // the child's peer id
	Name, Namespace      string // parent/child
	State                string
	Rights               []string
	MaxSeconds           int
	MaxChildren          int
	MaxMessages          int
	Messages, Children   int // used
	Depth                int
	WantResult           bool
	KeepOnExit           bool // outlives its parent's session
	CreatedAt, StartedAt int64
	EndedAt, ExpiresAt   int64
	ExitCode             *int
	ResultMessage        string
	Replay               bool

	parentSpawn string // the spawn that the parent is the agent of
}

// SpawnDraft is what spawn asks for, checked against the launcher already.
type SpawnDraft struct {
	Launcher, Name         string
	Rights                 []string
	MaxSeconds             int // more than 0
	MaxChildren            int // 0: none
	MaxMessages            int // 0: none; negative: no bound but the parent's
	WantResult, KeepOnExit bool
	Key                    string
	Fingerprint            []byte
}

// SpawnEnd is how a spawn ended.
type SpawnEnd struct {
	State    string
	ExitCode *int
	Output   string // what it said at the end, cleaned; for WantResult
	Rest     []Ref  // where the whole of it is
}
