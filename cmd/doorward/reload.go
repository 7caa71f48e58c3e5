package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/daemon/config"
)

// reloader reloads the configuration of a daemon that runs.
type reloader struct {
	o     *options
	d     *daemon.Daemon
	files []string // that were read, which are watched
	tell  teller
}

// lookEvery is the time between two checks of the files for a change.
const lookEvery = 2 * time.Second

// watch reloads the configuration on a signal of hup and when its file, the policy file,
// the tests of the policy or a secret that could not be read have changed and two checks find them the same: they may be written
// in several steps. A reload that fails changes nothing, and prints the reason. seen holds the
// stamps of the files when they were read.
func (r *reloader) watch(ctx context.Context, hup <-chan os.Signal, seen []stamp) {
	tick := time.Tick(lookEvery)
	l := looks{read: seen, last: seen}
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		case <-tick:
			if !l.due(r.o.pins.stats.of(r.files)) {
				continue
			}
		}
		l.read = r.o.pins.stats.of(r.files)
		if now := r.reload(); !slices.Equal(now, r.files) {
			r.files = now
			l.read = append(l.read[:1], r.o.pins.stamps(now[1:])...) // the first is the same file
		}
	}
}

// looks holds the stamps of the files when they were read, and at the last check.
type looks struct {
	read, last []stamp
	unsettled  int // checks since the last reading that found another change
}

// mostUnsettled bounds how long files that change all the time, or whose stamps do, are not read.
const mostUnsettled = 10

// due reports whether the files have changed since they were read, and not since the last
// check. now becomes the last check.
func (l *looks) due(now []stamp) bool {
	changed := !slices.EqualFunc(now, l.read, stamp.equal)
	settled := slices.EqualFunc(now, l.last, stamp.equal)
	l.last = now
	if changed && !settled && l.unsettled < mostUnsettled {
		l.unsettled++
		return false
	}
	l.unsettled = 0
	return changed
}

// reload reloads the configuration and returns the files that it read, which are watched
// from then on.
func (r *reloader) reload() []string {
	if r.o.found.Path == "" {
		const late = "there was no configuration when the daemon started: a new one is read at the next start"
		r.tell.error(late)
		daemon.NotReloaded(r.d, late)
		return []string{""}
	}
	w := r.o.loadWhole()
	r.tell.problems(append(w.problems, w.triedForServing()...))
	if w.config == nil {
		r.tell.error("the configuration was not reloaded: the running one remains in force")
		daemon.NotReloaded(r.d, firstProblem(w.problems))
		return w.files
	}
	if err := r.d.Reload(w.config); err != nil {
		r.tell.error(err.Error())
	}
	return w.files
}

// teller reports what keeps a configuration from being used: as text for a person, or with
// log.format json as lines of the log, so that a program can read all lines. The zero teller
// reports text.
type teller struct {
	log    *slog.Logger
	asJSON bool
}

func newTeller(c config.Log) teller { return teller{log: newLog(c), asJSON: c.Format == "json"} }

func (t teller) error(text string) {
	if t.asJSON {
		t.log.Error(text)
		return
	}
	fmt.Fprintln(stderr(), "doorward: error:", text)
}

func (t teller) problems(all []config.Problem) {
	if !t.asJSON {
		sayProblems(all)
		return
	}
	for _, p := range all {
		level := slog.LevelError
		if p.Warning {
			level = slog.LevelWarn
		}
		t.log.Log(context.Background(), level, "a problem of the configuration", "file", p.File, "line", p.Line, "key", p.Key, "problem", p.Problem)
	}
}

// firstProblem returns the first problem that makes the configuration unusable as a whole,
// and not one server of it; empty: none.
func firstProblem(all []config.Problem) string {
	for _, p := range all {
		if config.Fatal([]config.Problem{p}) {
			return p.String()
		}
	}
	return ""
}
