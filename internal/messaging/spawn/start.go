package spawn

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream/process"
)

// agent is one spawn from its start to its end.
type agent struct {
	id, name string
	launcher *Launcher
	rights   []string
	parent   *principal.Principal
	session  string // of the parent
	keep     bool   // outlives that session
	result   bool
	digest   [sha256.Size]byte
	dir      string // where it started
	until    time.Time
	token    string // the path of its token file
	output   *output

	// Guarded by Manager.mu.
	live    bool   // its token is valid
	why     string // the state with which it is being ended; empty: it ends by itself
	process *process.Process
	timer   *time.Timer
}

var errClosing = errors.New("the daemon is stopping")

// Start starts the agent of a spawn that was entered in the book, and returns when its
// process runs. It repeats the earlier checks, and uses the objects that it checked. It
// reports the start to the book, and later the end; a failed start at once. The error is
// a *mail.Error.
func (m *Manager) Start(ctx context.Context, s *mail.Spawn, parent *principal.Principal, r Request) error {
	a := &agent{id: s.ID, name: s.Name, parent: parent, session: s.ParentSession, keep: s.KeepOnExit, result: s.WantResult,
		rights: slices.Clone(s.Rights), until: deadline(s)}
	if err := m.enter(a); err != nil {
		return err
	}
	err := m.launch(a, &r)
	if err == nil {
		if err = m.o.Book.SpawnRuns(ctx, a.id, m.o.Note); err != nil {
			m.end(a, mail.Failed, 0)
		}
		go m.attend(a, r.Prompt)
		return err
	}
	m.o.Log.Error("an agent could not be started", "spawn", a.id, "launcher", r.Launcher, "err", err)
	m.leave(a)
	go m.tell(a, mail.SpawnEnd{State: mail.Failed})
	if known := new(mail.Error); errors.As(err, &known) {
		return known
	}
	return &mail.Error{Code: mail.SpawnDisabled, Err: err}
}

// enter registers a, unless the manager is closed. The book learns of an agent that is
// not admitted from the next start (Recover). From here on Close waits for tell.
func (m *Manager) enter(a *agent) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return &mail.Error{Code: mail.SpawnDisabled, Err: errClosing}
	case m.agents[a.id] != nil:
		return refused(mail.InvalidArgument, "spawn %s has been started", a.id)
	}
	m.agents[a.id] = a
	m.busy.Add(1)
	return nil
}

// launch starts the process. The token file is written before; the token is valid from
// the moment the process exists.
func (m *Manager) launch(a *agent, r *Request) error {
	l, rights, err := m.permitted(a.parent, r)
	if err != nil {
		return err
	}
	a.launcher, a.rights = l, common(a.rights, rights)
	folder, dir, err := m.folder(l, a.parent, r.Cwd)
	if err != nil {
		return err
	}
	defer folder.Close()
	a.dir = dir
	token := newToken(m.o.TokenPrefix)
	a.digest = sha256.Sum256([]byte(token))
	if a.token, err = writeToken(m.o.RuntimeDir, a.id, token); err != nil {
		return err
	}
	a.output = newOutput(m.o.StateDir, a.id, l.Output)
	return m.run(a, m.spec(a, l, r, folder))
}

// run registers the process at the moment it is created: look-ups wait meanwhile.
func (m *Manager) run(a *agent, spec process.Spec) error {
	m.launching.Lock()
	known := sync.OnceFunc(m.launching.Unlock)
	defer known()
	spec.Started = func(p *process.Process) {
		m.mu.Lock()
		a.process, a.live = p, a.why == ""
		m.mu.Unlock()
		known()
	}
	p, err := m.o.Runner.Start(spec)
	if err != nil {
		return fmt.Errorf("starting an agent: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.why != "" { // it was ended before its process existed
		p.Kill()
	}
	a.timer = time.AfterFunc(time.Until(a.until), func() { m.end(a, mail.TimedOut, 0) })
	return nil
}

// spec returns the process to start: the launcher's arguments with their values filled
// in.
func (m *Manager) spec(a *agent, l *Launcher, r *Request, folder *os.File) process.Spec {
	values := map[string]string{"{cwd}": a.dir, "{name}": a.name, "{model}": r.Model}
	if r.Model == "" && len(l.Models) > 0 {
		values["{model}"] = l.Models[0]
	}
	args := slices.Clone(l.Args)
	for i, arg := range args {
		if v, ok := values[arg]; ok {
			args[i] = v
		}
	}
	box := l.Sandbox
	box.Own = []string{m.o.Socket, a.token}
	return process.Spec{Server: "agent " + a.id, Path: l.Path, Args: args, Env: process.Environment(m.o.environment(a, l)), Dir: a.dir, Folder: folder,
		Sandbox: box, Stderr: func(line string) { m.o.Log.Debug("an agent wrote", "spawn", a.id, "line", line) }}
}

// attend writes the prompt to an agent, reads its output, waits for its end and reports
// it.
func (m *Manager) attend(a *agent, prompt string) {
	p := a.process
	go func() { // returns at the latest when the process ends, which closes Stdin
		_, _ = io.WriteString(p.Stdin, prompt)
		p.Stdin.Close()
	}()
	read := make(chan struct{})
	go func() {
		defer close(read)
		a.output.take(p.Stdout)
	}()
	<-p.Done()
	m.leave(a)
	// A process outside of the tree may hold the other end of the pipe.
	_ = p.Stdout.SetReadDeadline(time.Now().Add(time.Second))
	<-read
	p.Stdout.Close()
	m.endChildren(a.id)
	m.tell(a, m.ending(a))
}

// leave invalidates the identity of a: its token no longer counts.
func (m *Manager) leave(a *agent) {
	m.mu.Lock()
	a.live = false
	if a.timer != nil {
		a.timer.Stop()
	}
	m.mu.Unlock()
	if a.token != "" {
		_ = os.Remove(a.token) // the token is invalid anyway, and the next start removes the file
	}
}

// ending returns how an agent ended, with its result.
func (m *Manager) ending(a *agent) mail.SpawnEnd {
	m.mu.Lock()
	e := mail.SpawnEnd{State: a.why}
	m.mu.Unlock()
	err := a.process.Err()
	var exit *process.ExitError
	code := 0
	switch {
	case errors.As(err, &exit) && exit.Limit != "":
		e.State = mail.OverBudget
		m.o.Log.Warn("an agent was ended", "spawn", a.id, "why", exit.Limit)
	case errors.As(err, &exit) && exit.Supervisor && e.State == "":
		e.State = mail.Killed
	case exit != nil:
		code = exit.Code
	}
	if e.State == "" {
		e.State, e.ExitCode = mail.Exited, &code
	}
	e.Output, e.Rest = m.o.result(a)
	return e
}

// Replacements for output that must not be passed on.
const (
	resultWithheld = "(The result was withheld: it carries the mark of protected instructions.)"
	wholeWithheld  = "(The whole output was withheld: it carries the mark of protected instructions. This is its end.)\n"
	wholeCut       = "(The output has %d bytes; %d at its beginning are in a file. This is its end.)\n"
	notText        = "(The output was not text.)"
)

// result returns the part of an agent's output that its parent is sent. The whole output
// is searched before any of it is passed on, including the part that is not sent. A text
// that does not come with the whole output says so.
func (o *Options) result(a *agent) (text string, rest []mail.Ref) {
	text, whole := a.output.end()
	text, _ = plaintext.Clean(text)
	cut := a.output.total > resultBytes || len(text) > resultBytes // what is no text can become longer
	if text = cutText(text, resultBytes); text == "" && a.output.total > 0 {
		text = notText
	}
	if !a.result {
		text = ""
	}
	out, keep, blocked := text, true, false
	if o.Look != nil && (text != "" || whole != nil) {
		out, keep, blocked = o.Look(a.running(), text, whole)
	}
	ref := a.output.settle(keep && !blocked)
	switch {
	case !a.result:
		return "", nil
	case blocked:
		return resultWithheld, nil
	case !keep && whole != nil:
		return below(wholeWithheld, out), nil
	}
	var kept int64
	if ref != nil {
		rest, kept = []mail.Ref{*ref}, ref.Size
	}
	if total := a.output.total; cut && kept < total {
		out = below(fmt.Sprintf(wholeCut, total, kept), out)
	}
	return out, rest
}

// below returns a line and as much of the end of text as a result has room for.
func below(line, text string) string { return line + cutText(text, resultBytes-len(line)) }

// tell reports an end to the book, repeatedly until it is stored or the daemon stops;
// then the next start reports it.
func (m *Manager) tell(a *agent, e mail.SpawnEnd) {
	defer m.busy.Done()
	defer m.forget(a)
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, time.Minute) {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		_, err := m.o.Book.EndSpawn(ctx, a.id, e, m.o.Note)
		cancel()
		if err == nil {
			return
		}
		m.o.Log.Error("the end of an agent could not be stored", "spawn", a.id, "state", e.State, "err", err)
		var known *mail.Error
		if errors.As(err, &known) && known.Code == mail.UnknownSpawn {
			return
		}
		select {
		case <-time.After(wait):
		case <-m.quit:
			return
		}
	}
}

func (m *Manager) forget(a *agent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.agents[a.id] == a {
		delete(m.agents, a.id)
	}
}
