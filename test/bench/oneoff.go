//go:build linux

package main

import (
	"fmt"
	"slices"
	"time"
)

// opening holds the times of opening a session: connect, initialize, initialized.
type opening struct {
	Path    string          `json:"path"`
	Samples []time.Duration `json:"samples_ns"`
}

// opens opens and closes sessions on the paths in turns, one at a time.
func (r *run) opens(paths []*path, count int) []opening {
	openings := make([]opening, len(paths))
	for i, p := range paths {
		openings[i].Path = p.name
	}
	for n := range count {
		for i, p := range paths {
			if r.broken[p.name] {
				continue
			}
			before := time.Now()
			s, err := openSession(p.entry, n, r.modern)
			took := time.Since(before)
			if r.failed(p, err) {
				continue
			}
			s.close()
			openings[i].Samples = append(openings[i].Samples, took)
		}
	}
	for i := range openings {
		slices.Sort(openings[i].Samples)
	}
	return openings
}

// idleCost holds the memory of a proxy without sessions and with idle ones.
type idleCost struct {
	Path     string `json:"path"`
	Sessions int    `json:"sessions"`
	Start    memory `json:"start"` // ready, before the first session
	Open     memory `json:"open"`  // all sessions and streams open, settled
}

// perSession returns the growth of resident memory per session, in KiB.
func (c idleCost) perSession() float64 {
	return float64(c.Open.RSS-c.Start.RSS) / float64(c.Sessions)
}

// idle starts new processes, measures the proxy's memory, opens n sessions, each with an open GET
// stream and a persistent connection for its calls, waits until the memory settles, and measures
// again. Children are not counted.
func (r *run) idle(name string, n int, startPath func() (*path, error)) (idleCost, error) {
	cost := idleCost{Path: name, Sessions: n}
	p, err := startPath()
	if err != nil {
		return cost, err
	}
	defer p.stop()
	if cost.Start, err = settled(p.proxy.pid()); err != nil {
		return cost, err
	}
	r.progress("%-22s idle: %d KiB, opening %d sessions", name, cost.Start.RSS, n)
	sessions, err := openAll(p.entry, n, false)
	if err != nil {
		return cost, err
	}
	defer closeAll(sessions)
	if err := r.openStreams(sessions); err != nil {
		return cost, err
	}
	if cost.Open, err = settled(p.proxy.pid()); err != nil {
		return cost, err
	}
	r.progress("%-22s idle: %d KiB with %d sessions", name, cost.Open.RSS, n)
	return cost, stillServed(sessions)
}

// openStreams makes one request on each session and opens its stream.
func (r *run) openStreams(sessions []*session) error {
	for _, s := range sessions {
		if err := s.listTools(); err != nil {
			return err
		}
		if err := s.openStream(); err != nil {
			return err
		}
	}
	return nil
}

// stillServed fails when sessions were dropped, because the measured memory would be too small.
func stillServed(sessions []*session) error {
	for i, s := range sessions {
		if !s.streamAlive() {
			return fmt.Errorf("the stream of session %d has ended", i)
		}
		if i%50 != 0 {
			continue
		}
		if err := s.listTools(); err != nil {
			return fmt.Errorf("session %d after idling: %w", i, err)
		}
	}
	return nil
}

// settled waits until the resident memory has changed by at most one per cent for three seconds,
// but at most fifteen seconds, and returns it.
func settled(pid int) (memory, error) {
	const step, quiet, limit = 500 * time.Millisecond, 6, 30
	reference, err := memoryOf(pid)
	if err != nil {
		return memory{}, err
	}
	now := reference
	for i, same := 0, 0; i < limit && same < quiet; i++ {
		time.Sleep(step)
		if now, err = memoryOf(pid); err != nil {
			return memory{}, err
		}
		if 100*max(now.RSS-reference.RSS, reference.RSS-now.RSS) <= reference.RSS {
			same++
		} else {
			reference, same = now, 0
		}
	}
	return now, nil
}

// stop ends the path's proxy and its upstream.
func (p *path) stop() {
	if p.proxy != nil {
		p.proxy.stop()
	}
	if p.upstream != nil {
		p.upstream.stop()
	}
}
