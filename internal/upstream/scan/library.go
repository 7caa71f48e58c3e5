package scan

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
)

// Library holds the pattern files in use. The same mode and file give the same scanner, so
// that a reload of the configuration changes nothing about it.
type Library struct {
	say func(path string, err error)

	mu       sync.Mutex
	sources  map[string]*source
	scanners map[handling]*Scanner
}

type handling struct {
	mode Mode
	path string
}

// NewLibrary makes a library. say is called for each later reading of a file: with nil if it
// is in force, otherwise with the reason why the earlier rules stay.
func NewLibrary(say func(path string, err error)) *Library {
	return &Library{say: say, sources: make(map[string]*source), scanners: make(map[handling]*Scanner)}
}

// Scanner returns a scanner; nil for off. path is a pattern file, "" for the built-in rules.
// A file that cannot be used is an error.
func (l *Library) Scanner(mode Mode, path string) (*Scanner, error) {
	if mode == Off || mode == "" {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h := handling{mode, path}
	if s := l.scanners[h]; s != nil {
		return s, nil
	}
	src := l.sources[path]
	if src == nil {
		var err error
		if src, err = newSource(path, l.say); err != nil {
			return nil, err
		}
		l.sources[path] = src
	}
	s := &Scanner{mode: mode, source: src}
	l.scanners[h] = s
	return s, nil
}

// CheckFile returns what is wrong with a pattern file; nil: nothing.
func CheckFile(path string) error {
	place, err := durable.Pin(path)
	if err != nil {
		return fmt.Errorf("reading the patterns: %w", err)
	}
	defer place.Close()
	_, _, err = read(place)
	return err
}

// source is a pattern file that is read again after a change, or the built-in rules.
type source struct {
	path  string
	place *durable.Pinned // of path
	say   func(string, error)
	set   atomic.Pointer[Set]
	next  atomic.Int64 // when the file is checked again, in Unix nanoseconds

	mu   sync.Mutex
	seen look
}

// look is the state of a file by which a change is recognised.
type look struct {
	size    int64
	changed time.Time
}

func newSource(path string, say func(string, error)) (*source, error) {
	s := &source{path: path, say: say}
	if path == "" {
		set, err := Parse(defaultPatterns)
		if err != nil {
			return nil, fmt.Errorf("the built-in rules: %w", err)
		}
		s.set.Store(set)
		return s, nil
	}
	place, err := durable.Pin(path)
	if err != nil {
		return nil, fmt.Errorf("reading the patterns: %w", err)
	}
	s.place = place
	set, seen, err := read(place)
	if err != nil {
		return nil, err
	}
	s.set.Store(set)
	s.seen = seen
	s.next.Store(time.Now().Add(lookEvery).UnixNano())
	return s, nil
}

// lookEvery is how long a changed file may stay unnoticed while it is used.
const lookEvery = time.Second

// current returns the rules in force.
func (s *source) current() *Set {
	if s.path == "" {
		return s.set.Load()
	}
	now := time.Now()
	if next := s.next.Load(); now.UnixNano() >= next && s.next.CompareAndSwap(next, now.Add(lookEvery).UnixNano()) {
		s.refresh(now)
	}
	return s.set.Load()
}

// refresh reads the file again if it has changed, and not a moment ago: it may be written in
// several steps. After a bad change the earlier rules stay, and the error is reported once.
func (s *source) refresh(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := lookAt(s.path)
	same, age := seen == s.seen, now.Sub(seen.changed)
	if !same && age >= 0 && age < lookEvery {
		return
	}
	// Two changes within the resolution of file times look like one.
	if same && age > 2*lookEvery+time.Second {
		return
	}
	set, seen, err := read(s.place)
	s.seen = seen
	switch {
	case err != nil && !same:
		s.say(s.path, err)
	case err == nil && !set.equal(s.set.Load()):
		s.set.Store(set)
		s.say(s.path, nil)
	}
}

func (s *Set) equal(o *Set) bool {
	return slices.EqualFunc(s.rules, o.rules, func(a, b rule) bool { return a.name == b.name && a.re.String() == b.re.String() })
}

func lookAt(path string) look {
	fi, err := os.Stat(path)
	if err != nil {
		return look{}
	}
	return look{fi.Size(), fi.ModTime()}
}

// maxFile bounds a pattern file.
const maxFile = 1 << 20

func read(place *durable.Pinned) (*Set, look, error) {
	seen := lookAt(place.Path())
	f, err := place.Open()
	if err != nil {
		return nil, seen, fmt.Errorf("reading the patterns: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, seen, fmt.Errorf("reading the patterns: %w", err)
	}
	if len(b) > maxFile {
		return nil, seen, errors.New("the pattern file is too large")
	}
	set, err := Parse(b)
	if err != nil {
		return nil, seen, err
	}
	return set, seen, nil
}
