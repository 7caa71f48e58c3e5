package library

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
)

// State is how the library is.
type State struct {
	OK       bool              // false: nothing new may be made of the set
	Reason   string            // why it is not OK, for the operator
	Unused   bool              // nobody uses it: it is OK, and the set is empty
	Problems document.Problems // what cost single documents, and what the set says of itself
	// Withdrawn: it is not OK since the remote gives us nothing any more. Nothing of
	// the set goes on, for those who had it neither.
	Withdrawn bool
	Since     time.Time // when OK, Reason and Unused became what they are
	Remote    bool
}

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

// publisher makes what Set gives, and tells of its changes.
type publisher struct {
	l       *Library
	telling sync.Mutex // of said
	said    State      // what the log was told
}

// publish replaces the snapshot by one of the present facts, and reports
// whether what Set gives became another. The caller holds mu.
func (b *publisher) publish() (changed bool) {
	old := b.l.now.Load()
	next := &snapshot{labels: make(map[string]map[string][]*document.Document)}
	problems, lost := b.served(next)
	if old != nil && slices.Equal(old.of, next.of) {
		next.set, next.said = old.set, old.said
	} else {
		next.set, next.said = document.NewSet(next.of)
	}
	serving := len(next.set.Documents())
	next.state = b.judge(serving, lost+len(next.of)-serving)
	next.state.Problems = slices.Concat(next.state.Problems, problems, next.said)
	next.state.Since = b.l.o.Now()
	changed = old != nil && (next.set != old.set || !next.state.equal(old.state))
	if old != nil && next.state.same(old.state) {
		next.state.Since = old.state.Since
	}
	b.l.now.Store(next)
	return changed
}

// maxSaid is how many problems are told in the log at a time.
const maxSaid = 20

// tell says what changed, in the log and to who waits for it. The caller holds
// nothing.
func (b *publisher) tell(changed bool) {
	if !changed {
		return
	}
	b.telling.Lock()
	before, now := b.said, b.l.now.Load().state
	b.said = now
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
	b.telling.Unlock()
	b.l.o.Changed()
}

// same compares what Since is about.
func (s State) same(o State) bool {
	return s.OK == o.OK && s.Reason == o.Reason && s.Unused == o.Unused
}

// equal compares all but Since.
func (s State) equal(o State) bool { return s.same(o) && slices.Equal(s.Problems, o.Problems) }

// served fills in what may be given out, and says what is lost of that.
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

// judge is the state without what the set says of itself.
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
