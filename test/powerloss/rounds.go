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

// subject is a program under test: it answers for data that it has stored.
type subject interface {
	// begin starts the program on the directory and returns after its first answer.
	begin(dir string) error
	// kill ends the program with SIGKILL and returns the ids that it has answered for since
	// begin.
	kill() ([]string, error)
	// stored starts the program for the last time, runs its own checks if it has any, and returns
	// every stored id, repeated as often as it is stored.
	stored(dir string, answered []string) ([]string, error)
}

// run runs all rounds of a scenario and compares what is stored with what was answered.
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
	case s.mustLose && t.rounds > 0: // a broken store after at least one round is a loss too
		return fmt.Sprintf("%s; broken, as it must be: %s", t, firstLine(err)), nil
	}
	return "", err
}

// lives runs the rounds of a subject on a disk and then reads what is stored.
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

// round runs the subject once, from begin to kill.
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

// tally holds the results of some rounds. An id that is stored but was never answered is allowed:
// its answer was still in transit.
type tally struct {
	rounds           int
	answered, stored []string
	syncs            int64
	forgotten        int // pages
}

// wrong returns how many answered ids are missing and how many ids are stored more than once.
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
