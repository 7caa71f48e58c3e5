package library

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/instructions/document"
)

const (
	lookEvery = time.Second
	// lookTime is how long the first look, and one that was asked for, waits for
	// files to become whole.
	lookTime = time.Second
	// chunk is how many changed documents one transaction takes.
	chunk = 32
)

// watcher looks at the directory of a library. Its own fields belong to the
// goroutine of watch, but for those under the library's mu.
type watcher struct {
	l *Library
	// The directory as it was found last, if it ever was, and whether it has been
	// looked at.
	dir        fs.FileInfo
	identified bool

	slow   bool  // of mu, as the rest: the look under way takes too long
	pass   int64 // the number of the look that is under way
	inPass bool
}

// run looks at the directory every second until ctx ends. All that it does
// with files is done on its goroutine.
func (w *watcher) run(ctx context.Context) {
	s := newScanner(w.l.o.Dir)
	s.whole = filing{w.l}.putWhole
	w.look(ctx, s, true)
	w.l.dormant.Store(w.unused())
	close(w.l.ready)
	t := time.Tick(lookEvery)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case done := <-w.l.asks:
			if !w.l.dormant.Load() {
				w.look(ctx, s, true)
			}
			close(done)
		case <-t:
			if !w.l.dormant.Load() {
				w.look(ctx, s, false)
			}
		}
	}
}

// unused reports that this installation never had documents. A directory that is
// not configured and did not exist at the start is not looked for later: any
// program of this user could create it, a server included. Put wakes the watch,
// because it makes the directory itself.
func (w *watcher) unused() bool {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	return w.l.found.missing && !w.l.o.Required && len(w.l.book) == 0
}

// identify notes which directory it is that was looked at, and says when one has
// come, or has taken the place of another, since the start, before anything of
// it is taken. One that Put made is hidden from others anew, and trusted.
func (w *watcher) identify(v sight) {
	first := !w.identified
	w.identified = true
	now := v.dir
	if v.err != nil && !errors.Is(v.err, fs.ErrNotExist) { // what cannot be read is noted all the same
		now, _ = os.Stat(w.l.o.Dir)
	}
	if now == nil {
		return
	}
	if !first && (w.dir == nil || !os.SameFile(w.dir, now)) {
		w.l.strange.Store(!w.isMade(now))
		if w.l.strange.Load() {
			w.l.o.Log.Warn("the instruction directory was replaced: new documents in it wait for doorward instructions promote", "dir", w.l.o.Dir)
		} else {
			w.l.o.Log.Info("the instruction directory was created", "dir", w.l.o.Dir)
		}
		w.l.o.Replaced()
	}
	w.dir = now
}

// isMade reports whether Put made the directory.
func (w *watcher) isMade(dir fs.FileInfo) bool {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	return w.l.made != nil && os.SameFile(w.l.made, dir)
}

// Look has the directory looked at now, and returns when what is there has
// been taken, at most when ctx ends. A remote is not asked: it returns at once.
func (l *Library) Look(ctx context.Context) error {
	if l.remote != nil || l.o.Dir == "" {
		return nil
	}
	done := make(chan struct{})
	select {
	case l.asks <- done:
	case <-ctx.Done():
		return fmt.Errorf("looking at the instruction directory: %w", ctx.Err())
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("looking at the instruction directory: %w", ctx.Err())
	}
}

// look looks at the directory and takes what it finds. A thorough look waits a
// moment for what is just being written; another leaves that to the next.
func (w *watcher) look(ctx context.Context, s *scanner, thorough bool) {
	v := w.glance(s)
	for end := time.Now().Add(lookTime); thorough && v.moving && time.Now().Before(end); v = w.glance(s) {
		pause(ctx, settle)
	}
	if v.err != nil && !thorough {
		pause(ctx, settle) // it may just be being replaced
		v = w.glance(s)
	}
	if ctx.Err() == nil {
		w.identify(v)
		w.take(ctx, v)
	}
}

// glance is one look of the scanner. While it takes too long, the library is
// not OK.
func (w *watcher) glance(s *scanner) sight {
	w.l.mu.Lock()
	w.pass++
	n := w.pass
	w.inPass = true
	w.l.mu.Unlock()
	t := time.AfterFunc(slowAfter, func() { w.lags(n) })
	defer t.Stop()
	v := w.l.sees(s)
	w.l.mu.Lock()
	w.inPass, w.slow = false, false
	w.l.mu.Unlock()
	return v
}

// lags says that the n-th look takes too long, if it still goes on.
func (w *watcher) lags(n int64) {
	w.l.mu.Lock()
	changed := false
	if w.inPass && w.pass == n {
		w.slow = true
		changed = w.l.publisher.publish()
	}
	w.l.mu.Unlock()
	w.l.publisher.tell(changed)
}

// take makes the found documents the current ones, and stores the new versions.
// The served set changes once, when all is stored.
func (w *watcher) take(ctx context.Context, v sight) {
	f := found{looked: true}
	if v.err != nil {
		f.missing = errors.Is(v.err, fs.ErrNotExist)
		f.trouble = v.err.Error()
		w.settle(func() { w.l.found = f })
		return
	}
	here, changes := w.lay(v, &f)
	changes = w.fitting(here, changes, &f)
	chunks := slices.Collect(slices.Chunk(changes, chunk))
	for i, some := range chunks {
		then := func() {}
		if i == len(chunks)-1 {
			then = func() { w.l.here, w.l.found = here, f }
		}
		if err := w.l.record(ctx, some, then); err != nil && ctx.Err() == nil {
			f.problems = append(f.problems, document.Problem{File: w.l.o.Dir, Line: 1,
				Text: fmt.Sprintf("changed documents cannot be stored, so the earlier ones remain in force: %v", err)})
			break
		}
	}
	if ctx.Err() == nil {
		w.settle(func() { w.l.here, w.l.found = here, f })
	}
}

// settle publishes what a look found.
func (w *watcher) settle(then func()) {
	w.l.mu.Lock()
	then()
	changed := w.l.publisher.publish()
	w.l.mu.Unlock()
	w.l.publisher.tell(changed)
}

// change is a document that has to be written down.
type change struct {
	key
	doc     *document.Document
	content []byte
	file    string
	moved   bool // it is not what the directory held before
}

// lay finds out which file holds which document, and what is new in that.
func (w *watcher) lay(v sight, f *found) (here map[key]present, changes []change) {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	f.problems = v.tooMany(w.l.o.Dir)
	here, w.l.hereDocs = make(map[key]present), make(map[edition]*document.Document)
	for _, name := range w.incumbentsFirst(v) {
		f.place(here, name, v.files[name])
	}
	w.keepEarlier(here, v)
	for k, p := range here {
		if p.doc != nil {
			w.l.hereDocs[edition{k.name, p.doc.Version}] = p.doc
		}
	}
	for name := range w.l.whole {
		if seen, ok := v.files[name]; !ok || !seen.moving {
			delete(w.l.whole, name)
		}
	}
	return here, w.changes(here, v)
}

// incumbentsFirst orders files so that, of two with the same document, the one
// that had it before keeps it.
func (w *watcher) incumbentsFirst(v sight) []string {
	before := make(map[string]bool)
	for k, s := range w.l.book {
		if f, ok := v.files[s.file]; ok && f.doc != nil && keyOf(f.doc) == k {
			before[s.file] = true
		}
	}
	first := slices.DeleteFunc(slices.Clone(v.names), func(name string) bool { return !before[name] })
	return append(first, slices.DeleteFunc(slices.Clone(v.names), func(name string) bool { return before[name] })...)
}

// place enters one file.
func (f *found) place(here map[key]present, name string, seen file) {
	if seen.doc == nil {
		f.problems = append(f.problems, seen.problems...)
		if len(seen.problems) > 0 {
			f.bad++
		}
		return
	}
	k := keyOf(seen.doc)
	if other, taken := here[k]; taken {
		f.bad++
		f.problems = append(f.problems, document.Problem{File: plaintext.Name(name), Line: 1,
			Text: fmt.Sprintf("has the name %q for the same audience as %s, which is used", k.name, other.file)})
		return
	}
	here[k] = present{file: name, doc: seen.doc}
}

// keepEarlier enters what a file held when it could still be read: its earlier
// production goes on.
func (w *watcher) keepEarlier(here map[key]present, v sight) {
	for k, s := range w.l.book {
		if f, ok := v.files[s.file]; ok && f.doc == nil {
			if _, taken := here[k]; !taken {
				here[k] = present{file: s.file}
			}
		}
	}
}

// changes are the documents that the book does not know as they are now, in
// order of their names. The caller holds mu.
func (w *watcher) changes(here map[key]present, v sight) (out []change) {
	for _, k := range slices.SortedFunc(maps.Keys(here), key.compare) {
		p := here[k]
		if p.doc == nil {
			continue
		}
		moved := w.l.seen[k] != p.doc.Version
		_, lost := w.l.damaged[edition{k.name, p.doc.Version}]
		if s := w.l.book[k]; moved || lost || s == nil || s.file != p.file {
			out = append(out, change{key: k, doc: p.doc, content: v.files[p.file].content, file: p.file, moved: moved})
		}
	}
	return out
}

// Scan reads a directory once by the rules of the watch: its documents, in the
// order of their files, and why other files are none. document.NewSet judges the
// documents together.
func Scan(dir string) ([]*document.Document, document.Problems, error) {
	s := newScanner(dir)
	v := s.look()
	for end := time.Now().Add(lookTime); v.moving && time.Now().Before(end); v = s.look() {
		time.Sleep(settle)
	}
	if v.err != nil {
		return nil, nil, v.err
	}
	var docs []*document.Document
	problems := v.tooMany(dir)
	for _, name := range v.names {
		f := v.files[name]
		problems = append(problems, f.problems...)
		switch {
		case f.doc != nil:
			docs = append(docs, f.doc)
		case f.problems == nil:
			problems = append(problems, document.Problem{File: plaintext.Name(name), Line: 1, Text: "is being written"})
		}
	}
	return docs, problems, nil
}

// tooMany is the problem of a directory with too many documents.
func (v sight) tooMany(dir string) document.Problems {
	if v.over == 0 {
		return nil
	}
	return document.Problems{{File: dir, Line: 1, Text: fmt.Sprintf("contains %d documents: at most %d are possible, and the last ones by name are left out",
		v.over+maxFiles, maxFiles)}}
}
