//go:build linux

package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Bounds on a single answer. A program built with Go 1.26 that waits in a blocking read, as stdio
// servers do on their stdin, may freeze for up to a minute when a garbage collection begins at the
// same moment as the read. With the fixture alone this was seen about once in some hundred thousand
// calls. It spoils one window, which the medians ignore. The report mentions an answer that takes
// longer than stallNote; one that takes longer than callPatience fails its path.
const (
	stallNote    = 5 * time.Second
	callPatience = 90 * time.Second
)

// warmUp is the uncounted time for which a path is driven before its first round.
const warmUp = time.Second

// openAtOnce is the maximum number of sessions opened concurrently.
const openAtOnce = 16

// window holds the figures of one path in one round.
type window struct {
	Calls     int           `json:"calls"`
	PerSecond float64       `json:"calls_per_second"`
	P50       time.Duration `json:"p50_ns"`
	P99       time.Duration `json:"p99_ns"`
	Longest   time.Duration `json:"longest_ns"`
	Proxy     float64       `json:"proxy_cpu_seconds_per_1000"`
	Upstream  float64       `json:"upstream_cpu_seconds_per_1000"`
}

func (w window) cpu() float64 { return w.Proxy + w.Upstream }

// openAll opens n sessions, a few at a time. After an error none stays open.
func openAll(at endpoint, n int, modern bool) ([]*session, error) {
	sessions := make([]*session, n)
	errs := make([]error, n)
	slots := make(chan struct{}, openAtOnce)
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			sessions[i], errs[i] = openSession(at, i, modern)
			<-slots
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		closeAll(sessions)
		return nil, firstOf(err)
	}
	return sessions, nil
}

// firstOf reduces a joined error to its first one and their number.
func firstOf(err error) error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		all := joined.Unwrap()
		return fmt.Errorf("%w (one of %d)", all[0], len(all))
	}
	return err
}

func closeAll(sessions []*session) {
	slots := make(chan struct{}, openAtOnce)
	var wg sync.WaitGroup
	for _, s := range sessions {
		if s == nil {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			s.close()
			<-slots
		})
	}
	wg.Wait()
}

// drive starts all sessions together. Each calls the tool, one call at a time, until d has passed.
// It returns the time from the start to the last answer.
func drive(sessions []*session, tool string, d time.Duration) (time.Duration, error) {
	for _, s := range sessions {
		if err := s.refresh(); err != nil {
			return 0, err
		}
	}
	begin := make(chan struct{})
	errs := make([]error, len(sessions))
	var deadline time.Time
	var wg sync.WaitGroup
	for i, s := range sessions {
		s.samples = s.samples[:0]
		s.conn.patience(d + callPatience)
		wg.Go(func() {
			<-begin
			errs[i] = s.repeat(tool, deadline)
		})
	}
	started := time.Now()
	deadline = started.Add(d)
	close(begin)
	wg.Wait()
	elapsed := time.Since(started)
	for _, s := range sessions {
		s.used = time.Now()
	}
	if err := errors.Join(errs...); err != nil {
		return elapsed, firstOf(err)
	}
	return elapsed, nil
}

func (s *session) repeat(tool string, deadline time.Time) error {
	for {
		before := time.Now()
		if !before.Before(deadline) {
			return nil
		}
		if err := s.call(tool); err != nil {
			return err
		}
		s.samples = append(s.samples, time.Since(before))
	}
}

// measure drives one path for d and reads the processor times of its processes before and after.
func (p *path) measure(sessions []*session, tool string, d time.Duration) (window, error) {
	before, err := p.cpu(len(sessions))
	if err != nil {
		return window{}, err
	}
	elapsed, err := drive(sessions, tool, d)
	if err != nil {
		return window{}, fmt.Errorf("%s: %w", p.name, err)
	}
	after, err := p.cpu(len(sessions))
	if err != nil {
		return window{}, err
	}
	var samples []time.Duration
	for _, s := range sessions {
		samples = append(samples, s.samples...)
	}
	slices.Sort(samples)
	thousands := float64(len(samples)) / 1000
	return window{
		Calls:     len(samples),
		PerSecond: float64(len(samples)) / elapsed.Seconds(),
		P50:       quantile(samples, 0.50),
		P99:       quantile(samples, 0.99),
		Longest:   quantile(samples, 1),
		Proxy:     (after.proxy - before.proxy).Seconds() / thousands,
		Upstream:  (after.upstream - before.upstream).Seconds() / thousands,
	}, nil
}

// quantile returns a quantile of sorted values.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// cell holds the figures of one path at one number of sessions, one window for each round.
type cell struct {
	Path     string   `json:"path"`
	Sessions int      `json:"sessions"`
	Tool     string   `json:"tool"`
	Rounds   []window `json:"rounds"`
}

// compare opens n sessions on every path, warms them up, and then measures the paths in turns, so
// that a temporary slowdown of the machine affects all of them. Each round begins with another
// path.
func (r *run) compare(paths []*path, n int, tool string, rounds int, d time.Duration) []cell {
	cells := make([]cell, len(paths))
	open := make([][]*session, len(paths))
	for i, p := range paths {
		cells[i] = cell{Path: p.name, Sessions: n, Tool: tool}
		sessions, err := openAll(p.entry, n, r.modern)
		if err == nil {
			open[i] = sessions
			_, err = drive(sessions, tool, min(d, warmUp))
		}
		r.failed(p, err)
	}
	for round := range rounds {
		for turn := range paths {
			i := (round + turn) % len(paths)
			if r.broken[paths[i].name] {
				continue
			}
			w, err := paths[i].measure(open[i], tool, d)
			if r.failed(paths[i], err) {
				continue
			}
			cells[i].Rounds = append(cells[i].Rounds, w)
			r.progress("%-22s %2d sessions, %s, round %d: %6.0f calls/s, p50 %v, cpu %.3f s/1000",
				paths[i].name, n, tool, round+1, w.PerSecond, w.P50.Round(time.Microsecond), w.cpu())
		}
	}
	for _, sessions := range open {
		closeAll(sessions)
	}
	return cells
}
