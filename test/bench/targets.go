//go:build linux

package main

import "fmt"

// verdict is one target and what was measured.
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

// stdioShare is how many calls a second a stdio upstream must reach, of what the reverse proxy reaches in
// front of the same tools over HTTP, by the number of sessions.
var stdioShare = map[int]float64{1: 1.3, 8: 1.5, 64: 1.8}

// judge holds the run against the targets.
func (res *results) judge() []verdict {
	var all []verdict
	for _, n := range []int{1, 8, 64} {
		all = append(all,
			res.atLeast(fmt.Sprintf("HTTP upstream, calls per second, %d sessions", n), 0.9, res.share(pathHTTP, n, perSecond)),
			res.atMost(fmt.Sprintf("HTTP upstream, p50, %d sessions", n), 1.2, res.share(pathHTTP, n, p50)))
	}
	all = append(all,
		res.atMost("HTTP upstream, CPU per call, 64 sessions", 1.25, res.share(pathHTTP, 64, cpuAll)),
		res.atMost("HTTP upstream, time of a 1 MiB result", 1.5, res.bigShare(pathHTTP)))
	all = append(all, res.judgeStdio("stdio upstream, one server for all sessions", pathShared)...)
	all = append(all, res.judgeStdio("stdio upstream, a server a session", pathStdio)...)
	all = append(all, res.judgeIdentity())
	all = append(append(all, res.judgeMemory()...), res.judgeMail()...)
	return append(append(all, res.judgeInstructions()...), res.judgeBeside()...)
}

// judgeStdio applies the same targets to both ways of running stdio servers. A server a session pays for
// as many runtimes, heaps and cold caches as there are sessions; the bare bridge shows how much of a miss
// is the servers' own.
func (res *results) judgeStdio(what, name string) []verdict {
	var all []verdict
	for _, n := range []int{1, 8, 64} {
		all = append(all, res.atLeast(fmt.Sprintf("%s, calls per second, %d sessions", what, n), stdioShare[n], res.share(name, n, perSecond)))
	}
	return append(all,
		res.atMost(what+", CPU per call, 64 sessions", 0.65, res.share(name, 64, cpuAll)),
		res.atMost(what+", time of a 1 MiB result", 1.5, res.bigShare(name)))
}

func (res *results) judgeMemory() []verdict {
	var all []verdict
	for _, t := range []struct {
		path, name string
		limit      float64
	}{{pathHTTP, "HTTP upstream", 80}, {pathStdio, "stdio upstream, children not counted", 45}} {
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

// share is a figure of a path by that of the reverse proxy, 0 when either was not measured.
func (res *results) share(name string, sessions int, figure func(window) float64) float64 {
	c := find(res.Load, name, sessions)
	if c == nil {
		return 0
	}
	return c.ratio(find(res.Load, pathReverse, sessions), figure)
}

func (res *results) bigShare(name string) float64 {
	c := find(res.Big, name, 1)
	if c == nil {
		return 0
	}
	return c.ratio(find(res.Big, pathReverse, 1), p50)
}
