//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// The paths of the section instructions, by their names in the report. A path makes one request at
// a time over the Unix socket, on a persistent connection unless its name says otherwise.
const (
	pathHealth   = "health"                    // the base cost: no authentication and no audit record
	pathCold     = "first fetch of a session"  // GET /auth/instructions with an unused token
	pathColdDial = "first fetch, new caller"   // the same on a new connection, whose set-up is included
	pathCached   = "fetch, not modified"       // If-None-Match, 304
	pathWhole    = "fetch again"               // the same session without If-None-Match
	pathAll      = "fetch, all documents"      // with max_bytes=65536, so that nothing is truncated
	pathRender   = "rendered template"         // distinct variables each time
	pathHello    = "initialize"                // at the aggregate endpoint, without a delivery session
	pathGreeted  = "initialize with a session" // the same with Doorward-Session: the answer carries the protected text
	pathStranger = "initialize, instructions not used"
)

const (
	turnCalls     = 50 // requests in one turn of a path
	turnsPerRound = 10
	judgedFetches = 1000 // a path with fewer requests is not judged
)

// errand is one measured path: a request that is repeated. An incomplete answer counts as degraded,
// not as an error.
type errand struct {
	name   string
	base   string                        // the path that it is compared with; empty: none
	before func(n int) error             // not timed; nil: nothing
	do     func() (bool, error)          // the timed request; reports whether its answer was complete
	after  func() error                  // not timed; nil: nothing
	clock  func() (time.Duration, error) // processor time of the daemon
}

// fetchCost holds the times of one path.
type fetchCost struct {
	Path     string      `json:"path"`
	Base     string      `json:"base"`
	Turns    []fetchTurn `json:"turns"`
	Degraded int         `json:"degraded"` // incomplete answers
}

// fetchTurn is one turn of a path. Its times are sorted.
type fetchTurn struct {
	Took []time.Duration `json:"took_ns"`
	CPU  float64         `json:"daemon_cpu_seconds_per_1000"`
}

// instructCost holds the costs of instruction delivery.
type instructCost struct {
	Fetches []fetchCost `json:"fetches"`
	Calls   []fetchCost `json:"calls"`
}

// instruct measures the cost of instruction delivery, and its cost for calls: the daemon looks for
// marks in their arguments. The calls are compared with those at a daemon without instructions.
//
// Each first fetch needs a new session, and POST /auth/session creates only ten a minute for a
// principal. Therefore the operator creates these sessions with POST /auth/admin/sessions on the
// Unix socket before each turn and ends them after it, neither of them timed. Such a session reads
// only structural content; hence all documents are structural, and a first fetch composes the same
// text as any other fetch. It differs from an agent's own session in two points: it is bound to no
// process, and the policy is evaluated for one tier instead of two. All other paths use one session
// from POST /auth/session, which is bound to this process.
func (r *run) instruct(t *tools) *instructCost {
	p, err := r.openInstructed(t)
	if r.failed(&path{name: "instructions"}, err) {
		return nil
	}
	defer p.stop()
	cost := new(instructCost)
	cost.Fetches = r.inTurns(p.errands())
	calls, err := p.calls() // after the fetches, so that the daemon looks for the refs of their texts
	if !r.failed(&path{name: "instructions, calls"}, err) {
		cost.Calls = r.inTurns(calls)
	}
	return cost
}

// openInstructed starts a daemon with instructions, one without, and the tool server behind both.
func (r *run) openInstructed(t *tools) (p *instructed, err error) {
	dir, err := os.MkdirTemp(t.dir, "guide-")
	if err != nil {
		return nil, fmt.Errorf("preparing: %w", err)
	}
	p = &instructed{audit: filepath.Join(dir, "with", "state", "audit")}
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	if p.fixture, err = t.startFixture(); err != nil {
		return nil, err
	}
	docs := filepath.Join(dir, "documents")
	if err = writeGuidance(docs); err != nil {
		return nil, err
	}
	if p.without, err = t.startInstructed(filepath.Join(dir, "without"), "", p.fixture); err != nil {
		return nil, err
	}
	if p.with, err = t.startInstructed(filepath.Join(dir, "with"), docs, p.fixture); err != nil {
		return nil, err
	}
	if err = p.open(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, p.with.tail)
	}
	return p, nil
}

// inTurns measures the errands in turns. The first round is not counted.
func (r *run) inTurns(errands []errand) []fetchCost {
	costs := make([]fetchCost, len(errands))
	for i, e := range errands {
		costs[i] = fetchCost{Path: e.name, Base: e.base}
	}
	for turn := range 1 + r.rounds*turnsPerRound {
		for k := range errands {
			i := (turn + k) % len(errands)
			if r.broken[errands[i].name] {
				continue
			}
			took, degraded, err := errands[i].turn(turnCalls)
			if r.failed(&path{name: errands[i].name}, err) || turn == 0 {
				continue
			}
			costs[i].Turns = append(costs[i].Turns, took)
			costs[i].Degraded += degraded
		}
	}
	for i := range costs {
		c := &costs[i]
		r.progress("%-34s %5d requests, p50 %v, p95 %v, %d not whole", c.Path, len(c.all()), c.quantile(0.5).Round(time.Microsecond),
			c.quantile(0.95).Round(time.Microsecond), c.Degraded)
	}
	return costs
}

// turn repeats an errand n times.
func (e *errand) turn(n int) (t fetchTurn, degraded int, err error) {
	if e.before != nil {
		if err := e.before(n); err != nil {
			return t, 0, err
		}
	}
	spent, err := e.clock()
	if err != nil {
		return t, 0, err
	}
	for range n {
		begun := time.Now()
		whole, err := e.do()
		if err != nil {
			return t, degraded, err
		}
		t.Took = append(t.Took, time.Since(begun))
		if !whole {
			degraded++
		}
	}
	now, err := e.clock()
	t.CPU = (now - spent).Seconds() / float64(n) * 1000
	slices.Sort(t.Took)
	if err == nil && e.after != nil {
		err = e.after()
	}
	return t, degraded, err
}

// all returns the times of all turns, sorted.
func (c *fetchCost) all() []time.Duration {
	var all []time.Duration
	for _, t := range c.Turns {
		all = append(all, t.Took...)
	}
	slices.Sort(all)
	return all
}

func (c *fetchCost) quantile(q float64) time.Duration { return quantile(c.all(), q) }

// ratio returns the median over the turns of a figure divided by that of the base in the
// neighbouring turn.
func (c *fetchCost) ratio(base *fetchCost, figure func(fetchTurn) float64) float64 {
	if base == nil {
		return 0
	}
	var values []float64
	for i := range min(len(c.Turns), len(base.Turns)) {
		if by := figure(base.Turns[i]); by > 0 {
			values = append(values, figure(c.Turns[i])/by)
		}
	}
	return median(values)
}

func turnP50(t fetchTurn) float64 { return float64(quantile(t.Took, 0.5)) }
func turnCPU(t fetchTurn) float64 { return t.CPU }
