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

// Spawn is one agent that another agent started.
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
	Messages, Children   int // used so far
	Depth                int
	WantResult           bool
	KeepOnExit           bool // it outlives its parent's session
	CreatedAt, StartedAt int64
	EndedAt, ExpiresAt   int64
	ExitCode             *int
	ResultMessage        string
	Replay               bool

	parentSpawn string // the spawn whose agent the parent is; empty: none
}

// SpawnDraft holds the arguments of BeginSpawn, checked against the launcher already.
type SpawnDraft struct {
	Launcher, Name         string
	Rights                 []string
	MaxSeconds             int // more than 0
	MaxChildren            int // 0: none
	MaxMessages            int // 0: none; negative: only the parent's bound
	WantResult, KeepOnExit bool
	Key                    string
	Fingerprint            []byte
}

// SpawnEnd describes how a spawn ended.
type SpawnEnd struct {
	State    string
	ExitCode *int
	Output   string // its last output, cleaned; for WantResult
	Rest     []Ref  // links to the whole output
}
