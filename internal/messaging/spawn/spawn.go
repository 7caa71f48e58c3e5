// Package spawn starts agents for agents: programs that the operator has configured, each
// contained, with an identity of its own, at most the rights of its requester, and a
// budget.
//
// It exists so that an agent that needs another one does not need a shell. The program
// comes from the operator's configuration; values of a request take fixed places in it,
// and the prompt goes to standard input.
//
// Invariants: an agent is identified by two things together, the process tree that the
// kernel reports and a token that only it was given; neither counts without the other,
// and both are invalid from the moment its main process ends. An agent's output is
// searched before any of it is passed on. Every spawn that is open in the book is
// reported as ended, by this package or at the daemon's next start. No process of an
// agent outlives its end, nor the daemon's (package process).
//
// Limit: it runs on Linux only, because other systems do not report process trees
// reliably.
package spawn

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream/process"
)

// Launcher is a configured program that may be started.
type Launcher struct {
	Name   string
	Path   string   // absolute
	Args   []string // {model}, {cwd} and {name} are replaced by values
	Env    map[string]string
	Cwd    string // the directory when the request names none
	Roots  []string
	Rights []string // words of a scope
	Models []string // the first is the default

	// Bounds of one start, and its budget when the request names none.
	Seconds, Children, Messages int

	Output  int64 // bytes of standard output that are kept
	Sandbox process.Sandbox
	Refused string // why it must not be used; empty: it may be used
	// Approved reports an error unless the program is the approved one. It approves the
	// first one where that is configured. nil: no approval is required.
	Approved func() error
}

// Request holds what an agent asks for.
type Request struct {
	Launcher, Prompt string
	Name             string // the child's name below its parent's; empty: the book makes one
	Cwd, Model       string // empty: the launcher's
	Rights           []string
	RightsGiven      bool // Rights are set, possibly to none; false: the launcher's rights
	MaxSeconds       int  // 0: the launcher's
	MaxChildren      *int // nil: the launcher's
	MaxMessages      *int // nil: the launcher's
	Result           bool // send the final output to the parent as a message
	KeepOnExit       bool // it outlives its parent's session
	Key              string
	Fingerprint      []byte
}

// Book stores the spawns.
type Book interface {
	SpawnRuns(ctx context.Context, id string, note mail.Note[mail.Spawn]) error
	EndSpawn(ctx context.Context, id string, e mail.SpawnEnd, note mail.Note[mail.Spawn]) (*mail.Spawn, error)
	OpenSpawns(ctx context.Context) ([]mail.Spawn, error)
}

// Options configure a Manager.
type Options struct {
	Runner *process.Runner
	Book   Book
	// StateDir has a subdirectory with the outputs of agents; RuntimeDir has their
	// tokens; Socket is the path on which the daemon listens. All are absolute.
	StateDir, RuntimeDir, Socket string
	TokenPrefix                  string
	DaemonKey                    string // by which an agent authenticates the daemon; empty: it does not
	// Look searches an agent's output before anything of it is passed on: the text for
	// its parent, and the whole output if that is longer (otherwise nil). out is the part
	// of the text that may be sent; keep: the whole output may be kept; blocked: neither
	// is allowed. nil: outputs are not searched.
	Look func(by *Running, text string, whole io.Reader) (out string, keep, blocked bool)
	// Note makes the record of a start or an end. The book requires it.
	Note mail.Note[mail.Spawn]
	Log  *slog.Logger // nil: discards
}

// Running describes a running agent for authentication.
type Running struct {
	ID, Launcher string
	Rights       []string
	Parent       *principal.Principal
	Digest       [sha256.Size]byte // of its token
}

// Manager starts and ends agents. Its methods are safe for concurrent use.
type Manager struct {
	o Options

	// launching is locked while a process has been created and is not registered here
	// yet, so that TreeOf waits for it.
	launching sync.RWMutex

	mu        sync.Mutex
	launchers map[string]*Launcher
	agents    map[string]*agent // by spawn id, from before their start to their end
	closed    bool
	busy      sync.WaitGroup
	quit      chan struct{} // closed when ends are no longer reported to the book
	hush      sync.Once     // closes it
}

// New makes a Manager. It starts nothing.
func New(o Options) *Manager {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Manager{o: o, launchers: map[string]*Launcher{}, agents: map[string]*agent{}, quit: make(chan struct{})}
}

// SetLaunchers sets the launchers for later starts.
func (m *Manager) SetLaunchers(all map[string]*Launcher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.launchers = all
}

// Available returns the names of the usable launchers, sorted; none: agents cannot be
// started.
func (m *Manager) Available() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name, l := range m.launchers {
		if l.Refused == "" && process.CanContain {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Find returns a running agent; nil for every other id.
func (m *Manager) Find(id string) *Running {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.agents[id]
	if a == nil || !a.live {
		return nil
	}
	return a.running()
}

func (a *agent) running() *Running {
	return &Running{ID: a.id, Launcher: a.launcher.Name, Rights: a.rights, Parent: a.parent, Digest: a.digest}
}

// TreeOf returns the id of the agent in whose process tree pid is; empty: none. The
// caller ensures that pid still names the process in question.
func (m *Manager) TreeOf(pid int) string {
	m.launching.RLock()
	defer m.launching.RUnlock()
	for _, a := range m.running() {
		if a.process.Contains(pid) {
			return a.id
		}
	}
	return ""
}

// running returns the agents that have a process.
func (m *Manager) running() []*agent {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*agent
	for _, a := range m.agents {
		if a.live && a.process != nil {
			all = append(all, a)
		}
	}
	return all
}

// refused returns a refusal with a reason for the operator.
func refused(code, format string, args ...any) *mail.Error {
	return &mail.Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// deadline returns the time at which a spawn has to be over.
func deadline(s *mail.Spawn) time.Time {
	if s.ExpiresAt > 0 {
		return time.UnixMilli(s.ExpiresAt)
	}
	return time.Now().Add(time.Duration(s.MaxSeconds) * time.Second)
}
