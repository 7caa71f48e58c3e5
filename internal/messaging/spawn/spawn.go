// Package spawn starts agents for agents: programs that the operator has
// configured, each contained, with an identity of its own, at most the rights of
// its requester, and a budget.
//
// An agent that needs another one therefore does not need a shell. The program
// comes from the operator's configuration; values of a request take fixed places
// in it, and the prompt goes to standard input.
//
// Invariants: an agent is identified by two things together, the process tree
// that the kernel reports and a token that only it was given; neither counts
// without the other, and both are invalid from the moment its main process ends.
// An agent's output is searched before any of it is passed on. Every spawn that
// is open in the book is reported as ended, by this package or at the daemon's
// next start. No process of an agent outlives its end, nor the daemon's (package
// process).
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

// Launcher is a program that may be started, as it was configured.
type Launcher struct {
	Name   string
	Path   string   // absolute
	Args   []string // {model}, {cwd} and {name} stand for values
	Env    map[string]string
	Cwd    string // where it starts when the request does not say
	Roots  []string
	Rights []string // words of a scope
	Models []string // the first is the default

	// The most that one start may ask for, and what it gets without asking.
	Seconds, Children, Messages int

	Output  int64 // bytes of standard output that are kept
	Sandbox process.Sandbox
	Refused string // why it must not be used; empty: it may
	// Approved says whether the program is the one that was approved, and
	// approves a first one where that is configured. nil: it is.
	Approved func() error
}

// Request is what an agent asks for.
type Request struct {
	Launcher, Prompt string
	Name             string // of the child below its parent's; empty: the book makes one
	Cwd, Model       string // empty: the launcher's
	Rights           []string
	RightsGiven      bool // Rights were asked for, empty ones too; else the launcher's
	MaxSeconds       int  // 0: the launcher's
	MaxChildren      *int // nil: the launcher's
	MaxMessages      *int // nil: the launcher's
	Result           bool // the final output goes to the parent as a message
	KeepOnExit       bool
	Key              string
	Fingerprint      []byte
}

// Book is what is kept of spawns.
type Book interface {
	SpawnRuns(ctx context.Context, id string, note mail.Note[mail.Spawn]) error
	EndSpawn(ctx context.Context, id string, e mail.SpawnEnd, note mail.Note[mail.Spawn]) (*mail.Spawn, error)
	OpenSpawns(ctx context.Context) ([]mail.Spawn, error)
}

// Options of a Manager.
type Options struct {
	Runner *process.Runner
	Book   Book
	// StateDir holds what agents wrote, in a directory of its own; RuntimeDir
	// their tokens, and Socket is where the daemon listens. Absolute.
	StateDir, RuntimeDir, Socket string
	TokenPrefix                  string
	DaemonKey                    string // by which an agent knows the daemon; empty: it does not
	// Clean makes a text harmless that goes into a message; nil: what is not
	// printable is dropped.
	Clean func(string) string
	// Look searches an agent's output before anything of it is passed on: the text
	// for its parent, and the whole output where that is more (else nil). out is
	// the part of the text that may be sent; keep: the whole may be kept; blocked:
	// neither. nil: outputs are not searched.
	Look func(by *Running, text string, whole io.Reader) (out string, keep, blocked bool)
	// Note is the record of a start and of an end. The book requires it.
	Note mail.Note[mail.Spawn]
	Log  *slog.Logger // nil: discards
}

// Running is what the door has to know of an agent that runs.
type Running struct {
	ID, Launcher string
	Rights       []string
	Parent       *principal.Principal
	Digest       [sha256.Size]byte // of its token
}

// Manager starts and ends agents. Its methods may be called at once.
type Manager struct {
	o Options

	// launching is held while a process is being made and not yet registered here,
	// so that no look-up happens in between.
	launching sync.RWMutex

	mu        sync.Mutex
	launchers map[string]*Launcher
	agents    map[string]*agent // by spawn id, from before their start to their end
	closed    bool
	busy      sync.WaitGroup
	quit      chan struct{} // closed when no more is told to the book
	hush      sync.Once     // closes it
}

// New makes a Manager. It starts nothing.
func New(o Options) *Manager {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clean == nil {
		o.Clean = plainText
	}
	return &Manager{o: o, launchers: map[string]*Launcher{}, agents: map[string]*agent{}, quit: make(chan struct{})}
}

// SetLaunchers says what may be started from now on.
func (m *Manager) SetLaunchers(all map[string]*Launcher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.launchers = all
}

// Available are the launchers that can be named, sorted; none: there is no
// spawning here.
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

// Find is an agent that runs; nil for every other id.
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

// TreeOf returns the agent in whose process tree pid is; empty: none. The caller
// ensures that pid still names the process in question.
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

// running are the agents that have a process.
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

// refused is a refusal with a reason for the operator.
func refused(code, format string, args ...any) *mail.Error {
	return &mail.Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// deadline is when a spawn has to be over.
func deadline(s *mail.Spawn) time.Time {
	if s.ExpiresAt > 0 {
		return time.UnixMilli(s.ExpiresAt)
	}
	return time.Now().Add(time.Duration(s.MaxSeconds) * time.Second)
}
