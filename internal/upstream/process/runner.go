package process

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Runner starts servers, counts them and ends them together. It is safe for concurrent use.
type Runner struct {
	o Options

	mu     sync.Mutex
	alive  int // started or being started, and not Done yet
	live   map[*Process]struct{}
	closed bool
	empty  chan struct{} // closed once closed is set and alive is 0

	groups *cgroups // nil: none
	image  sealedImage
	checks checks
	homes  homes
	holds  sync.Map // by server: the measures of the last process that was started
	shared atomic.Pointer[[]string]
}

// NewRunner makes a [Runner]. It fails only if the path of the own binary cannot be found.
func NewRunner(o Options) (*Runner, error) {
	if o.Self == "" {
		self, err := ownBinary()
		if err != nil {
			return nil, fmt.Errorf("finding the path of this program: %w", err)
		}
		o.Self = self
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Homes == nil {
		o.Homes = ownHome()
	}
	o.Max = orDefault(o.Max, DefaultMax)
	o.Stdin = orDefault(o.Stdin, DefaultStdin)
	o.Term = orDefault(o.Term, DefaultTerm)
	o.LastWatch = orDefault(o.LastWatch, DefaultLastWatch)
	r := &Runner{o: o, live: map[*Process]struct{}{}, empty: make(chan struct{})}
	if o.Cgroups {
		r.groups = openCgroups()
	}
	return r, nil
}

// Share sets the paths that contained servers write. For servers that are started from now on, configured paths are
// not followed over links that lead out of these paths.
func (r *Runner) Share(paths []string) { r.shared.Store(&paths) }

func orDefault[T int | time.Duration](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

// Start starts a server under its supervisor. It returns ErrTooMany at once when Options.Max children are alive,
// ErrClosed after Close, and an error when the supervisor cannot be started, for instance because Dir is missing. If
// the server's own program cannot be executed, the process ends early with status 126 or 127 and a line on standard
// error. A server with a sandbox is contained when Start returns; an error that wraps ErrNotContained says that it
// could not be.
func (r *Runner) Start(s Spec) (*Process, error) {
	if err := r.reserve(); err != nil {
		return nil, err
	}
	p, err := r.launch(s)
	if err != nil {
		r.release(nil)
		return nil, fmt.Errorf("starting server %s: %w", s.Server, err)
	}
	open := r.admit(p)
	if s.Started != nil {
		s.Started(p)
	}
	if err := p.report.first(); err != nil {
		p.Kill()
		_ = p.Stdout.Close()
		return nil, fmt.Errorf("starting server %s: %w", s.Server, err)
	}
	p.report.share(s.Server, &r.holds)
	if !open {
		p.Stop()
		_ = p.Stdout.Close()
		return nil, ErrClosed
	}
	p.shrinkControl()
	return p, nil
}

// launch makes the server's own directory if it does not exist, and starts the supervisor.
func (r *Runner) launch(s Spec) (*Process, error) {
	plan := r.plan(s)
	switch {
	case plan != nil && plan.Home != "":
		if err := r.homes.prepare(plan.Home, s.Args, r.o.Homes); err != nil {
			return nil, err
		}
	case plan == nil && s.Dir == "" && s.Folder == nil && s.Sandbox.Home != "":
		s.Dir = filepath.Join(r.o.Private, s.Sandbox.Home)
		if err := os.MkdirAll(s.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("making its working directory: %w", err)
		}
	}
	return launch(r, s, plan)
}

// Alive returns the number of children that are started and not gone yet.
func (r *Runner) Alive() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.alive
}

func (r *Runner) reserve() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return ErrClosed
	case r.o.Max > 0 && r.alive >= r.o.Max:
		return ErrTooMany
	}
	r.alive++
	return nil
}

// admit adds p to the live processes and begins to watch it; false: the runner was closed meanwhile.
func (r *Runner) admit(p *Process) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live[p] = struct{}{}
	p.watch()
	return !r.closed
}

// release undoes reserve. p is nil if nothing was started.
func (r *Runner) release(p *Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, p)
	r.alive--
	if r.closed && r.alive == 0 {
		close(r.empty)
	}
}

// Close refuses further starts, ends all children in parallel by [Process.Stop] and returns when they are gone, with
// the default durations within seven seconds. When ctx ends first, the remaining ones are killed at once. An error
// names the children that were still there at the end; further calls return it too.
func (r *Runner) Close(ctx context.Context) error {
	for _, p := range r.shut() {
		p.Stop()
	}
	select {
	case <-r.empty:
		return nil
	case <-ctx.Done():
	}
	for _, p := range r.snapshot() {
		p.Kill()
	}
	select {
	case <-r.empty:
		return nil
	case <-time.After(r.o.LastWatch + time.Second):
		return fmt.Errorf("ending child processes: %w: still there: %s", ctx.Err(), r.names())
	}
}

func (r *Runner) shut() []*Process {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		if r.alive == 0 {
			close(r.empty)
		}
	}
	r.mu.Unlock()
	return r.snapshot()
}

func (r *Runner) snapshot() []*Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Collect(maps.Keys(r.live))
	return all
}

func (r *Runner) names() string {
	var names []string
	for _, p := range r.snapshot() {
		names = append(names, fmt.Sprintf("%s (pid %d)", p.server, p.PID()))
	}
	return strings.Join(names, ", ")
}

// Child is one process that a [Runner] holds.
type Child struct {
	Server   string
	PID      int // the supervisor's
	Mode     string
	Measures []Measure
}

// Children lists the live processes, sorted by server and pid.
func (r *Runner) Children() []Child {
	var all []Child
	for _, p := range r.snapshot() {
		c := Child{Server: p.server, PID: p.PID()}
		c.Mode, c.Measures = p.Sandbox()
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Child) int {
		if a.Server != b.Server {
			return strings.Compare(a.Server, b.Server)
		}
		return a.PID - b.PID
	})
	return all
}
