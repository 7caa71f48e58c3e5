package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// subject is a program that answers for what it stored.
type subject interface {
	// begin starts it on the directory and returns when it has answered for
	// the first time.
	begin(dir string) error
	// kill ends it with SIGKILL and returns the ids that it has answered for
	// since begin.
	kill() ([]string, error)
	// stored starts it for the last time and returns every id that it has, as
	// often as it has it, after whatever checks of its own it offers.
	stored(dir string, answered []string) ([]string, error)
}

// run lets the power go as often as there are rounds, and compares.
func run(s scenario, work string, rounds int, random *rand.Rand) (string, error) {
	dir := filepath.Join(work, "disk")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	d := newDisk()
	d.deaf = s.deaf
	if s.short {
		rounds = max(1, rounds/4)
	}
	t, err := lives(s, d, dir, s.subject(work), rounds, random)
	switch {
	case err == nil:
		return t.String(), t.verdict(s.mustLose)
	case s.mustLose && t.rounds > 0: // the first loss came before
		return fmt.Sprintf("%s; broken, as it must be: %s", t, firstLine(err)), nil
	}
	return "", err
}

// lives is what happens to a subject on a disk.
func lives(s scenario, d *disk, dir string, sub subject, rounds int, random *rand.Rand) (tally, error) {
	var t tally
	for range rounds {
		length := shortest + time.Duration(random.Int64N(int64(longest-shortest)))
		ids, synced, err := round(d, dir, sub, length)
		if err == nil && len(ids) == 0 {
			err = fmt.Errorf("nothing was answered in %s", length)
		}
		if err != nil {
			return t, fmt.Errorf("round %d: %w", t.rounds+1, err)
		}
		t.rounds++
		t.answered, t.syncs = append(t.answered, ids...), t.syncs+synced
		t.forgotten += d.lose(s.chance, random)
	}
	if t.forgotten == 0 {
		return t, errors.New("the file system had nothing to forget: nothing was tested")
	}
	m, err := mount(d, dir)
	if err != nil {
		return t, err
	}
	t.stored, err = sub.stored(dir, t.answered)
	return t, errors.Join(err, m.unmount())
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// round is one life of the subject.
func round(d *disk, dir string, sub subject, length time.Duration) (ids []string, syncs int64, err error) {
	m, err := mount(d, dir)
	if err != nil {
		return nil, 0, err
	}
	if err = sub.begin(dir); err == nil {
		time.Sleep(length)
	}
	ids, killErr := sub.kill()
	return ids, m.syncs.Load(), errors.Join(err, killErr, m.unmount())
}

// tally is what came of some rounds. That something is stored which was never
// answered is allowed: the answer was on its way.
type tally struct {
	rounds           int
	answered, stored []string
	syncs            int64
	forgotten        int // pages
}

// wrong is how many of the answered ids are not there, and how many ids are
// there more than once.
func (t tally) wrong() (lost, twice int) {
	times := make(map[string]int)
	for _, id := range t.stored {
		times[id]++
	}
	for _, n := range times {
		if n > 1 {
			twice++
		}
	}
	for _, id := range t.answered {
		if times[id] == 0 {
			lost++
		}
	}
	return lost, twice
}

func (t tally) String() string {
	lost, twice := t.wrong()
	return fmt.Sprintf("%d rounds, %d answered, %d stored, %d lost, %d twice (%d syncs, %d pages forgotten)",
		t.rounds, len(t.answered), len(t.stored), lost, twice, t.syncs, t.forgotten)
}

func (t tally) verdict(mustLose bool) error {
	switch lost, twice := t.wrong(); {
	case mustLose && lost == 0:
		return fmt.Errorf("the control lost nothing, so this test shows nothing: %s", t)
	case !mustLose && lost > 0:
		return fmt.Errorf("answered and lost: %s", t)
	case !mustLose && twice > 0:
		return fmt.Errorf("stored twice: %s", t)
	}
	return nil
}
