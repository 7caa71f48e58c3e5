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
	// lookTime is how long the first look, and a requested one, wait for files to become
	// complete.
	lookTime = time.Second
	// chunk is how many changed documents one transaction stores.
	chunk = 32
)

// watcher looks at the directory of a library. Its fields belong to the goroutine of run,
// except those that the library's mu guards.
type watcher struct {
	l *Library
	// dir is the directory as it was found last; nil: never. identified: identify has
	// run.
	dir        fs.FileInfo
	identified bool

	slow   bool  // guarded by mu, as the fields below: the present look takes too long
	pass   int64 // the number of the present look
	inPass bool
}

// run looks at the directory every second until ctx ends. All its file operations are
// done on its goroutine.
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

// unused reports that this installation never had documents. A directory that is not
// required and did not exist at the start is not watched: any program of this user could
// create it, a server included. Put wakes the watcher, because it creates the directory
// itself.
func (w *watcher) unused() bool {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	return w.l.found.missing && !w.l.o.Required && len(w.l.book) == 0
}

// identify remembers the directory that was looked at. It reports a directory that has
// appeared or was replaced since the start, before anything in it is taken over. A
// directory that Put created is trusted, but has to be hidden from sandboxes too.
func (w *watcher) identify(v sight) {
	first := !w.identified
	w.identified = true
	now := v.dir
	if v.err != nil && !errors.Is(v.err, fs.ErrNotExist) { // an unreadable directory is remembered too
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

// isMade reports whether Put created the directory.
func (w *watcher) isMade(dir fs.FileInfo) bool {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	return w.l.made != nil && os.SameFile(w.l.made, dir)
}

// Look makes the watcher look at the directory now, and returns when the result is taken
// over, or ctx ends. With a remote it returns at once and does nothing.
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

// look looks at the directory and takes over the result. A thorough look waits for files
// that are being written; another one leaves them to the next look.
func (w *watcher) look(ctx context.Context, s *scanner, thorough bool) {
	v := w.glance(s)
	for end := time.Now().Add(lookTime); thorough && v.moving && time.Now().Before(end); v = w.glance(s) {
		pause(ctx, settle)
	}
	if v.err != nil && !thorough {
		pause(ctx, settle) // it may be being replaced
		v = w.glance(s)
	}
	if ctx.Err() == nil {
		w.identify(v)
		w.take(ctx, v)
	}
}

// glance is one look of the scanner. While it takes longer than slowAfter, the library is
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

// lags marks the n-th look as too slow, if it is still running.
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

// take makes the found documents the present ones, and stores the new versions. The
// served set changes once, when all are stored.
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

// settle applies then under mu, and publishes.
func (w *watcher) settle(then func()) {
	w.l.mu.Lock()
	then()
	changed := w.l.publisher.publish()
	w.l.mu.Unlock()
	w.l.publisher.tell(changed)
}

// change is a document that has to be stored.
type change struct {
	key
	doc     *document.Document
	content []byte
	file    string
	moved   bool // the directory held another version of the key before
}

// lay assigns files to keys, and finds the changes.
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

// incumbentsFirst orders the files so that, of two with the same key, the one that had it
// before keeps it.
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

// place adds one file.
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

// keepEarlier adds the keys of files that cannot be read now: their production version
// stays in force.
func (w *watcher) keepEarlier(here map[key]present, v sight) {
	for k, s := range w.l.book {
		if f, ok := v.files[s.file]; ok && f.doc == nil {
			if _, taken := here[k]; !taken {
				here[k] = present{file: s.file}
			}
		}
	}
}

// changes returns the documents that differ from the book, in the order of their keys.
// The caller holds mu.
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

// Scan reads a directory once by the rules of the watcher: it returns the documents, in
// the order of their files, and the problems of other files. document.NewSet checks the
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

// tooMany returns the problem of a directory with too many documents.
func (v sight) tooMany(dir string) document.Problems {
	if v.over == 0 {
		return nil
	}
	return document.Problems{{File: dir, Line: 1, Text: fmt.Sprintf("contains %d documents: at most %d are possible, and the last ones by name are left out",
		v.over+maxFiles, maxFiles)}}
}
