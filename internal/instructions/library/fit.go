package library

import (
	"maps"
	"slices"

	"github.com/doorward/doorward/internal/instructions/document"
)

// fitting removes changes that would become production but could not be served with the
// other documents, because of their includes. It reports their problems, and the earlier
// production version stays. Documents that arrive at the next look are considered then.
func (w *watcher) fitting(here map[key]present, changes []change, f *found) []change {
	for !w.l.o.Review && len(changes) > 0 {
		moved := make(map[string]bool)
		for _, c := range changes {
			moved[c.file] = moved[c.file] || c.moved
		}
		_, problems := document.NewSet(w.prospect(here, changes))
		problems = slices.DeleteFunc(problems, func(p document.Problem) bool { return p.Warning || !moved[p.File] })
		if len(problems) == 0 {
			break
		}
		f.problems = append(f.problems, problems...)
		changes = slices.DeleteFunc(changes, func(c change) bool {
			out := slices.ContainsFunc(problems, func(p document.Problem) bool { return p.File == c.file })
			if out {
				f.bad++
			}
			return out
		})
	}
	return changes
}

// prospect returns the documents that would be served with the changes.
func (w *watcher) prospect(here map[key]present, changes []change) (docs []*document.Document) {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	next := make(map[key]*document.Document)
	for k, s := range w.l.book {
		if _, ok := here[k]; ok && s.serves() != "" {
			next[k] = w.l.docs[edition{k.name, s.serves()}]
		}
	}
	for _, c := range changes {
		if s := w.l.book[c.key]; c.moved && (s == nil || s.state == stateOpen) {
			next[c.key] = c.doc
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(next), key.compare) {
		if next[k] != nil {
			docs = append(docs, next[k])
		}
	}
	return docs
}
