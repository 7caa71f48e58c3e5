package library

import (
	"fmt"
	"slices"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
)

// snapshot is what Set and Lookup read. It is replaced, never changed.
type snapshot struct {
	set    *document.Set
	state  State
	of     []*document.Document                       // what the set was made of
	said   document.Problems                          // what the set says of itself
	labels map[string]map[string][]*document.Document // by name and label: what may be given out
}

// found is what the last look at the directory came to.
type found struct {
	looked   bool
	missing  bool
	trouble  string // why it could not be looked at
	problems document.Problems
	bad      int // files that cannot be used
}

// publish replaces the snapshot by one of the present facts, and reports
// whether what Set gives became another. The caller holds mu.
func (l *Library) publish() (changed bool) {
	old := l.now.Load()
	next := &snapshot{labels: make(map[string]map[string][]*document.Document)}
	problems, lost := l.served(next)
	if old != nil && slices.Equal(old.of, next.of) {
		next.set, next.said = old.set, old.said
	} else {
		next.set, next.said = document.NewSet(next.of)
	}
	serving := len(next.set.Documents())
	next.state = l.judge(serving, lost+len(next.of)-serving)
	next.state.Problems = slices.Concat(next.state.Problems, problems, next.said)
	next.state.Since = l.o.Now()
	changed = old != nil && (next.set != old.set || !next.state.equal(old.state))
	if old != nil && next.state.same(old.state) {
		next.state.Since = old.state.Since
	}
	l.now.Store(next)
	return changed
}

// maxSaid is how many problems are told in the log at a time.
const maxSaid = 20

// tell says what changed, in the log and to who waits for it. The caller holds
// nothing.
func (l *Library) tell(changed bool) {
	if !changed {
		return
	}
	l.telling.Lock()
	before, now := l.said, l.now.Load().state
	l.said = now
	switch {
	case !now.OK && now.Reason != before.Reason:
		l.o.Log.Warn("instructions cannot be given out", "reason", now.Reason)
	case now.OK && before.Reason != "":
		l.o.Log.Info("instructions can be given out again")
	}
	fresh := slices.DeleteFunc(slices.Clone(now.Problems), func(p document.Problem) bool { return slices.Contains(before.Problems, p) })
	for _, p := range fresh[:min(len(fresh), maxSaid)] {
		l.o.Log.Warn("a problem with instructions", "problem", p.String())
	}
	if more := len(fresh) - maxSaid; more > 0 {
		l.o.Log.Warn("further problems with instructions are in their list", "count", more)
	}
	l.telling.Unlock()
	l.o.Changed()
}

// same compares what Since is about.
func (s State) same(o State) bool {
	return s.OK == o.OK && s.Reason == o.Reason && s.Unused == o.Unused
}

// equal compares all but Since.
func (s State) equal(o State) bool { return s.same(o) && slices.Equal(s.Problems, o.Problems) }

// served fills in what may be given out, and says what is lost of that.
func (l *Library) served(next *snapshot) (problems document.Problems, lost int) {
	if l.remote != nil {
		next.of = l.far
		for _, d := range l.far {
			next.labels[d.Name] = map[string][]*document.Document{Production: {d}}
		}
		return nil, 0
	}
	for _, k := range l.book.keys() {
		s := l.book[k]
		if _, ok := l.here[k]; !ok || s.state != stateOpen {
			continue
		}
		for label, version := range s.labels {
			d := l.docs[edition{k.name, version}]
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
		if d := l.docs[edition{k.name, version}]; d != nil {
			next.of = append(next.of, d)
			continue
		}
		lost++
		problems = append(problems, document.Problem{File: k.name + "@" + short(version), Line: 1,
			Text: fmt.Sprintf("the production version in the database %s: promote another one, or write the file again",
				l.damaged[edition{k.name, version}])})
	}
	return problems, lost
}

// judge is the state without what the set says of itself.
func (l *Library) judge(served, lost int) State {
	switch {
	case l.remote != nil:
		return l.farState.judge(served)
	case l.o.Dir == "":
		return State{OK: true, Unused: true}
	}
	f := l.found
	s := State{Problems: f.problems}
	switch {
	case l.slow:
		s.Reason = fmt.Sprintf("the instruction directory %s has not answered for %s", l.o.Dir, slowAfter)
	case !f.looked:
		s.Reason = fmt.Sprintf("the instruction directory %s was not looked at yet", l.o.Dir)
	case f.missing && !l.o.Required && len(l.book) == 0:
		s.OK, s.Unused = true, true
	case f.missing:
		s.Reason = fmt.Sprintf("the instruction directory %s is missing", l.o.Dir)
	case f.trouble != "":
		s.Reason = f.trouble
	case served == 0 && f.bad+lost > 0:
		s.Reason = fmt.Sprintf("none of the documents in %s can be used", l.o.Dir)
	default:
		s.OK = true
	}
	return s
}

// slowAfter is how long one look at the directory may take.
const slowAfter = 2 * time.Second
