//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// startRounds is the number of starts measured in a round. A start takes some ten milliseconds, so
// more of them cost little.
const startRounds = 4

// starts measures the start time and the memory of each path with an empty and with a full store.
func (r *run) starts(t *tools, dir string) []startCost {
	stored := storedMail
	if r.short {
		stored /= 10
	}
	var all []startCost
	for _, way := range []struct {
		name string
		once func(t *tools, dir string) (time.Duration, memory, error)
		home func(t *tools, dir string) (string, error) // the directory of its messages, once it has been started
	}{
		{pathBook, (*tools).startBook, func(_ *tools, dir string) (string, error) { return dir, nil }},
		{pathDaemon, (*tools).startWithMail, (*tools).homeOfMail},
	} {
		if way.name == pathDaemon && t.doorward == "" {
			continue
		}
		costs := []startCost{{Path: way.name}, {Path: way.name, Stored: stored}}
		homes := make([]string, len(costs))
		err := error(nil)
		for i := range costs {
			homes[i] = filepath.Join(dir, fmt.Sprintf("%s-%d", way.name, costs[i].Stored))
			err = errors.Join(err, r.furnish(t, homes[i], costs[i].Stored, way.home))
		}
		for range startRounds * r.rounds {
			for i := range costs {
				if err != nil {
					break
				}
				var took time.Duration
				var m memory
				if took, m, err = way.once(t, homes[i]); err == nil {
					costs[i].Took, costs[i].RSS = append(costs[i].Took, took), append(costs[i].RSS, float64(m.RSS))
				}
			}
		}
		if !r.failed(&path{name: way.name + ", start"}, err) {
			for _, c := range costs {
				r.progress("%-22s start with %6d messages: %.1f ms, %.1f MB", c.Path, c.Stored, c.took()*1e3, c.megabytes())
			}
			all = append(all, costs...)
		}
	}
	return all
}

// furnish makes a directory that holds stored messages.
func (r *run) furnish(t *tools, dir string, stored int, home func(*tools, string) (string, error)) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	at, err := home(t, dir)
	if err != nil || stored == 0 {
		return err
	}
	before := time.Now()
	err = fill(at, stored)
	r.progress("%d messages stored in %v", stored, time.Since(before).Round(time.Millisecond))
	return err
}

// startBook opens the book in a separate process.
func (t *tools) startBook(dir string) (time.Duration, memory, error) {
	before := time.Now()
	p, err := start(1, announced, t.self, os.Environ(), modeBook, dir)
	took := time.Since(before)
	if err != nil {
		return 0, memory{}, err
	}
	defer p.stop()
	time.Sleep(restTime)
	m, err := memoryOf(p.pid())
	return took, m, err
}

// restTime is the time given to a process for its start-up work before its memory is measured.
const restTime = 300 * time.Millisecond

// startWithMail starts the daemon and lets two sessions exchange a message.
func (t *tools) startWithMail(dir string) (time.Duration, memory, error) {
	before := time.Now()
	p, err := t.startMailDaemon(dir)
	took := time.Since(before)
	if err != nil {
		return 0, memory{}, err
	}
	d := &mailDaemon{proxy: p, cursors: make([]string, 1)}
	defer d.close()
	if err := errors.Join(d.people(1, 1), d.send(0, 0, before.UnixNano())); err != nil {
		return 0, memory{}, err
	}
	if n, err := d.fetch(0); err != nil || n == 0 {
		return 0, memory{}, fmt.Errorf("fetching one message brought %d: %w", n, err)
	}
	time.Sleep(restTime)
	m, err := memoryOf(p.pid())
	return took, m, err
}

// homeOfMail returns the directory of the daemon's messages. It starts the daemon once to create
// it.
func (t *tools) homeOfMail(dir string) (string, error) {
	p, err := t.startMailDaemon(dir)
	if err != nil {
		return "", err
	}
	p.stop()
	return databaseIn(filepath.Join(dir, "state"))
}
