//go:build linux

package main

import "fmt"

// verdict is one target and its measured value.
type verdict struct {
	Target   string  `json:"target"`
	Bound    float64 `json:"bound"`
	AtLeast  bool    `json:"at_least"` // otherwise at most
	Measured float64 `json:"measured"`
	Unit     string  `json:"unit"` // empty: a ratio
	Known    bool    `json:"known"`
}

func (v verdict) pass() bool {
	if v.AtLeast {
		return v.Measured >= v.Bound
	}
	return v.Measured <= v.Bound
}

// shares are the targets for calls per second, by the number of sessions. They are relative to the
// reverse proxy in front of the same tools over HTTP, and to a program that reads the same messages
// and checks nothing.
type shares struct{ reverse, bare map[int]float64 }

var (
	httpShares  = shares{map[int]float64{1: 1.05, 8: 1.15, 64: 1.45}, map[int]float64{1: 0.95, 8: 0.95, 64: 0.98}}
	stdioShares = shares{map[int]float64{1: 1.5, 8: 1.65, 64: 2.2}, map[int]float64{1: 0.92, 8: 0.90, 64: 0.90}}
)

// judge compares the run with all targets.
func (res *results) judge() []verdict {
	all := res.judgeCalls("HTTP upstream", pathHTTP, pathRelay, httpShares, 0.58)
	all = append(all, res.judgeCalls("stdio upstream, one server for all sessions", pathShared, pathOne, stdioShares, 0.42)...)
	all = append(all, res.judgeOpening(pathHTTP, "HTTP upstream", 1), res.judgeOpening(pathShared, "stdio upstream, a server that runs", 1), res.judgeIdentity())
	all = append(append(all, res.judgeMemory()...), res.judgeMail()...)
	return append(append(all, res.judgeInstructions()...), res.judgeBeside()...)
}

// judgeCalls judges calls per second, the proxy's processor time, and large results.
func (res *results) judgeCalls(what, name, bare string, of shares, processor float64) []verdict {
	var all []verdict
	for _, n := range []int{1, 8, 64} {
		all = append(all,
			res.atLeast(fmt.Sprintf("%s, calls per second, %d sessions", what, n), of.reverse[n], res.share(name, pathReverse, n, perSecond)),
			res.atLeast(fmt.Sprintf("%s, calls per second, %d sessions, of the %s", what, n, bare), of.bare[n], res.share(name, bare, n, perSecond)))
	}
	return append(all,
		res.atMost(what+", CPU of the proxy per call, 64 sessions", processor, res.share(name, pathReverse, 64, cpuProxy)),
		res.atMost(what+", time of a 1 MiB result", 1.2, res.bigShare(name)))
}

// judgeOpening judges the time to open a session.
func (res *results) judgeOpening(name, what string, most float64) verdict {
	took := 0.0
	for _, o := range res.Openings {
		if n := len(o.Samples); o.Path == name && n > 0 {
			took = o.Samples[n/2].Seconds() * 1e3
		}
	}
	v := res.atMost("opening a session, "+what, most, took)
	v.Unit = "ms"
	return v
}

func (res *results) judgeMemory() []verdict {
	var all []verdict
	for _, t := range []struct {
		path, name string
		limit      float64
	}{{pathHTTP, "HTTP upstream", 30}, {pathStdio, "stdio upstream, children not counted", 20}} {
		started, session := 0.0, 0.0
		for _, c := range res.Idle {
			if c.Path == t.path {
				started, session = float64(c.Start.RSS)/1000*1.024, c.perSession()
			}
		}
		idle := res.atMost("resident memory at rest, "+t.name, 20, started)
		idle.Unit = "MB"
		open := res.atMost("resident memory of an idle session with its stream, "+t.name, t.limit, session)
		open.Unit = "KiB"
		all = append(all, idle, open)
	}
	return all
}

func (res *results) atLeast(target string, bound, measured float64) verdict {
	return verdict{Target: target, Bound: bound, AtLeast: true, Measured: measured, Known: measured != 0}
}

func (res *results) atMost(target string, bound, measured float64) verdict {
	return verdict{Target: target, Bound: bound, Measured: measured, Known: measured != 0}
}

// share returns the ratio of a figure of a path to that of another one, or 0 when either was not
// measured.
func (res *results) share(name, of string, sessions int, figure func(window) float64) float64 {
	c := find(res.Load, name, sessions)
	if c == nil {
		return 0
	}
	return c.ratio(find(res.Load, of, sessions), figure)
}

func (res *results) bigShare(name string) float64 {
	c := find(res.Big, name, 1)
	if c == nil {
		return 0
	}
	return c.ratio(find(res.Big, pathReverse, 1), p50)
}
