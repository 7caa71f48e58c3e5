package library

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
)

// State is the state of the library.
type State struct {
	OK       bool              // false: nothing new may be delivered from the set
	Reason   string            // the reason for not being OK, for the operator
	Unused   bool              // there is no library: OK, with an empty set
	Problems document.Problems // of single documents, and of the set
	// Withdrawn: it is not OK because the remote refuses the credential. The set is not
	// delivered any more, not even to readers that had it.
	Withdrawn bool
	Since     time.Time // when OK, Reason and Unused last changed
	Remote    bool
}

// snapshot holds the data of Set and Lookup. It is replaced, never changed.
type snapshot struct {
	set         *document.Set
	state       State
	of          []*document.Document                       // the documents that the set was made of
	setProblems document.Problems                          // the problems of the set
	labels      map[string]map[string][]*document.Document // by name and label: what may be delivered
}

// found is the result of the last look at the directory.
type found struct {
	looked   bool
	missing  bool
	trouble  string // the reason for which it could not be read
	problems document.Problems
	bad      int // files that cannot be used
}

// publisher makes the snapshot, and reports its changes.
type publisher struct {
	l       *Library
	logging sync.Mutex // guards logged
	logged  State      // the state that was last logged
}

// publish replaces the snapshot by one of the present facts, and reports whether the
// result of Set has changed. The caller holds mu.
func (b *publisher) publish() (changed bool) {
	old := b.l.now.Load()
	next := &snapshot{labels: make(map[string]map[string][]*document.Document)}
	problems, lost := b.served(next)
	if old != nil && slices.Equal(old.of, next.of) {
		next.set, next.setProblems = old.set, old.setProblems
	} else {
		next.set, next.setProblems = document.NewSet(next.of)
	}
	serving := len(next.set.Documents())
	next.state = b.judge(serving, lost+len(next.of)-serving)
	next.state.Problems = slices.Concat(next.state.Problems, problems, next.setProblems)
	next.state.Since = b.l.o.Now()
	changed = old != nil && (next.set != old.set || !next.state.equal(old.state))
	if old != nil && next.state.same(old.state) {
		next.state.Since = old.state.Since
	}
	b.l.now.Store(next)
	return changed
}

// maxSaid is how many problems are logged at a time.
const maxSaid = 20

// tell logs what has changed, and calls Options.Changed. The caller holds no lock.
func (b *publisher) tell(changed bool) {
	if !changed {
		return
	}
	b.logging.Lock()
	before, now := b.logged, b.l.now.Load().state
	b.logged = now
	switch {
	case !now.OK && now.Reason != before.Reason:
		b.l.o.Log.Warn("instructions cannot be delivered", "reason", now.Reason)
	case now.OK && before.Reason != "":
		b.l.o.Log.Info("instructions can be delivered again")
	}
	fresh := slices.DeleteFunc(slices.Clone(now.Problems), func(p document.Problem) bool { return slices.Contains(before.Problems, p) })
	for _, p := range fresh[:min(len(fresh), maxSaid)] {
		b.l.o.Log.Warn("a problem with instructions", "problem", p.String())
	}
	if more := len(fresh) - maxSaid; more > 0 {
		b.l.o.Log.Warn("further problems with instructions: see doorward instructions list", "count", more)
	}
	b.logging.Unlock()
	b.l.o.Changed()
}

// same compares the fields that Since is about.
func (s State) same(o State) bool {
	return s.OK == o.OK && s.Reason == o.Reason && s.Unused == o.Unused
}

// equal compares all fields that Changed reports.
func (s State) equal(o State) bool { return s.same(o) && slices.Equal(s.Problems, o.Problems) }

// served fills in what may be delivered, and returns the problems and number of the
// versions that are lost.
func (b *publisher) served(next *snapshot) (problems document.Problems, lost int) {
	if b.l.remote != nil {
		next.of = b.l.far
		for _, d := range b.l.far {
			next.labels[d.Name] = map[string][]*document.Document{Production: {d}}
		}
		return nil, 0
	}
	for _, k := range b.l.book.keys() {
		s := b.l.book[k]
		if _, ok := b.l.here[k]; !ok || s.state != stateOpen {
			continue
		}
		for label, version := range s.labels {
			d := b.l.docs[edition{k.name, version}]
			if d == nil {
				continue
			}
			if next.labels[k.name] == nil {
				next.labels[k.name] = make(map[string][]*document.Document)
			}
			next.labels[k.name][label] = append(next.labels[k.name][label], d)
		}
		version := s.serves()
		if version == "" {
			continue
		}
		if d := b.l.docs[edition{k.name, version}]; d != nil {
			next.of = append(next.of, d)
			continue
		}
		lost++
		problems = append(problems, document.Problem{File: k.name + "@" + short(version), Line: 1,
			Text: fmt.Sprintf("the production version in the database %s: promote another one, or write the file again",
				b.l.damaged[edition{k.name, version}])})
	}
	return problems, lost
}

// judge returns the state without the problems of the set.
func (b *publisher) judge(served, lost int) State {
	switch {
	case b.l.remote != nil:
		return b.l.farState.judge(served)
	case b.l.o.Dir == "":
		return State{OK: true, Unused: true}
	}
	f := b.l.found
	s := State{Problems: f.problems}
	switch {
	case b.l.watcher.slow:
		s.Reason = fmt.Sprintf("the instruction directory %s has not answered for %s", b.l.o.Dir, slowAfter)
	case !f.looked:
		s.Reason = fmt.Sprintf("the instruction directory %s has not been read yet", b.l.o.Dir)
	case f.missing && !b.l.o.Required && len(b.l.book) == 0:
		s.OK, s.Unused = true, true
	case f.missing:
		s.Reason = fmt.Sprintf("the instruction directory %s is missing", b.l.o.Dir)
	case f.trouble != "":
		s.Reason = f.trouble
	case served == 0 && f.bad+lost > 0:
		s.Reason = fmt.Sprintf("none of the documents in %s can be used", b.l.o.Dir)
	default:
		s.OK = true
	}
	return s
}

// slowAfter is how long one look at the directory may take.
const slowAfter = 2 * time.Second
