//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// The paths of the section beside: the same daemon in front of the same server, once alone and then
// with a feature in use that the measured calls do not need.
const (
	besidePlain   = "beside nothing"
	besideAsk     = "beside rules that hold other calls"
	besideConsole = "beside an open console"
)

// askPatterns are ask rules for calls that the benchmark does not make.
var askPatterns = []string{"write_*", "delete_*", "drop_*", "*_secret", "send_mail", "pay", "deploy_*", "git_push"}

// besideSessions are the numbers of sessions: one for the cost of a single call, many for the
// throughput.
var besideSessions = []int{1, 64}

// consoleWindow is the minimum window of the section: a console is notified of changes every two
// seconds.
const consoleWindow = 6 * time.Second

// besides holds the costs of calls in the section beside.
type besides struct {
	Load  []cell `json:"load"`
	Parts int64  `json:"parts"` // parts of pages fetched by the console meanwhile
}

// beside compares daemons that differ in one feature. All have the same listeners. The console is
// signed in through the Unix socket before the first call, because an MCP client may not sign in.
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

// spread returns the least and the greatest of the rounds' ratios.
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

// judgeBeside judges the section beside: rules that do not match may cost a call 2 %, and an open
// console may cost the throughput 3 %.
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
