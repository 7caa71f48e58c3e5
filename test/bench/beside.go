//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// The paths of the section beside: the same daemon in front of the same server, and beside it what people
// have that their calls do not need.
const (
	besidePlain   = "beside nothing"
	besideAsk     = "beside rules that hold other calls"
	besideConsole = "beside an open console"
)

// askPatterns hold calls that the benchmark does not make.
var askPatterns = []string{"write_*", "delete_*", "drop_*", "*_secret", "send_mail", "pay", "deploy_*", "git_push"}

// besideSessions are the numbers of sessions: a call by itself, and as many as there is work for.
var besideSessions = []int{1, 64}

// consoleWindow is how long a path is driven in a round: a console is told of what is new every two seconds.
const consoleWindow = 6 * time.Second

// besides is what calls cost beside those things.
type besides struct {
	Load  []cell `json:"load"`
	Parts int64  `json:"parts"` // of pages that the console fetched meanwhile
}

// beside lets daemons take turns that differ in one thing. They have the same listeners, the socket among
// them, through which the console is signed in before the first call: who speaks MCP may not.
func (r *run) beside(t *tools, level []int) (*besides, error) {
	fixture, err := t.startFixture()
	if err != nil {
		return nil, err
	}
	defer fixture.stop()
	var paths []*path
	defer func() {
		for _, p := range paths {
			p.stop()
		}
	}()
	var page *console
	for _, name := range []string{besidePlain, besideAsk, besideConsole} {
		p, home, err := t.startBeside(name, fixture)
		if err != nil {
			return nil, err
		}
		paths = append(paths, p)
		if name == besideConsole {
			if page, err = t.openConsole(home); err != nil {
				return nil, err
			}
			defer page.close()
		}
	}
	b := new(besides)
	for _, n := range level {
		b.Load = append(b.Load, r.compare(paths, n, "echo", r.rounds, max(r.window, consoleWindow))...)
	}
	b.Parts, err = page.fetched()
	return b, err
}

func (t *tools) startBeside(name string, fixture *process) (*path, string, error) {
	own := map[string]any{"allow_private": true, "max_concurrency": plenty}
	if name == besideAsk {
		own["tools"] = map[string]any{"ask": askPatterns}
	}
	p, home, err := t.startConfigured("auto", map[string]any{"url": "http://" + fixture.addr + "/mcp", "doorward": own})
	if err != nil {
		return nil, "", err
	}
	return &path{name: name, entry: endpoint{p.addr, "/mcp/bench"}, proxy: p, upstream: fixture}, home, nil
}

// spread is the least and the greatest of the rounds' ratios.
func (c *cell) spread(base *cell, figure func(window) float64) (least, most float64) {
	var values []float64
	for i := range min(len(c.Rounds), len(base.Rounds)) {
		values = append(values, figure(c.Rounds[i])/figure(base.Rounds[i]))
	}
	if len(values) == 0 {
		return 0, 0
	}
	return slices.Min(values), slices.Max(values)
}

func (res *results) printBeside(w io.Writer) {
	if res.Beside == nil {
		return
	}
	table(w, "Beside other things", fmt.Sprintf("Small calls of one daemon beside nothing, beside ask rules that do not match, and beside a signed-in console whose page Activity is open (%d parts fetched). Medians of the rounds; in brackets: the median, the least and the greatest of the rounds' ratios to the first.", res.Beside.Parts),
		"sessions", "path", "calls/s", "p50 µs", "CPU proxy")
	for i := range res.Beside.Load {
		c := &res.Beside.Load[i]
		base := find(res.Beside.Load, besidePlain, c.Sessions)
		if base == nil || len(c.Rounds) == 0 {
			continue
		}
		text := func(format string, unit float64, figure func(window) float64) string {
			least, most := c.spread(base, figure)
			return fmt.Sprintf(format+" (%.3f, %.3f to %.3f)", unit*c.median(figure), c.ratio(base, figure), least, most)
		}
		fmt.Fprintf(w, "| %d | %s | %s | %s | %s |\n", c.Sessions, c.Path, text("%.0f", 1, perSecond), text("%.0f", 1e-3, p50), text("%.3f", 1, cpuProxy))
	}
}

// judgeBeside: rules that do not match cost a call 2 %, and an open console the whole load 3 %, at most.
func (res *results) judgeBeside() []verdict {
	share := func(name string, sessions int, figure func(window) float64) float64 {
		if res.Beside == nil {
			return 0
		}
		c := find(res.Beside.Load, name, sessions)
		if c == nil {
			return 0
		}
		return c.ratio(find(res.Beside.Load, besidePlain, sessions), figure)
	}
	return []verdict{
		res.atMost("p50 of a call that no ask rule matches, by one without such rules", 1.02, share(besideAsk, 1, p50)),
		res.atMost("CPU of a call that no ask rule matches, by one without such rules", 1.02, share(besideAsk, 1, cpuProxy)),
		res.atLeast("calls per second beside an open console, 64 sessions", 0.97, share(besideConsole, 64, perSecond)),
	}
}
