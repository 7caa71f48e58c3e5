package library

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/instructions/document"
)

const (
	maxFiles   = 1000      // documents of a directory
	maxEntries = 20_000    // entries of a directory, of any kind
	maxContent = 256 << 10 // bytes of a document
	suffix     = ".md"
)

// settle is the time between two equal looks after which a file counts as complete if it
// was changed less than a second ago.
const settle = 200 * time.Millisecond

// scanner looks at one directory repeatedly, and reads the files that changed. Only one
// goroutine uses it.
type scanner struct {
	dir   string
	whole func(name string) (stamp, bool) // files that Put wrote completely
	files map[string]*file
}

// file is the state of one file.
type file struct {
	stamp  stamp
	since  time.Time // when this stamp was first found
	moving bool      // not read yet, because it may still be written
	gone   bool      // it was missing at the last look

	content  []byte             // as read last
	doc      *document.Document // of it
	problems document.Problems  // the reasons for which there is none
}

// sight is the result of one look. err is the reason for which it failed; it wraps
// fs.ErrNotExist if the directory is missing.
type sight struct {
	err    error
	dir    fs.FileInfo // the directory that was read
	names  []string    // of files, sorted
	files  map[string]file
	over   int // number of documents beyond the limit
	moving bool
}

func newScanner(dir string) *scanner {
	return &scanner{dir: dir, files: make(map[string]*file), whole: func(string) (stamp, bool) { return stamp{}, false }}
}

// look reads the present state of the directory.
func (s *scanner) look() sight {
	root, err := openDir(s.dir)
	if err != nil {
		return sight{err: err}
	}
	defer root.Close()
	names, over, err := list(root)
	if err != nil {
		return sight{err: fmt.Errorf("reading the instruction directory: %w", err)}
	}
	dir, err := root.Stat(".")
	if err != nil {
		return sight{err: fmt.Errorf("looking at the instruction directory: %w", err)}
	}
	out := sight{dir: dir, over: over, files: make(map[string]file)}
	now := time.Now()
	for _, name := range names {
		s.one(root, name, now)
	}
	s.forget(names)
	for name, f := range s.files {
		out.moving = out.moving || f.moving || f.gone
		out.names = append(out.names, name)
		out.files[name] = *f
	}
	slices.Sort(out.names)
	return out
}

// openDir opens a directory that only the daemon's user or root owns and can write to.
func openDir(dir string) (*os.Root, error) {
	root, err := durable.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the instruction directory: %w", err)
	}
	fi, err := root.Stat(".")
	if err == nil {
		var st stamp
		if st, err = stampOf(fi); err == nil && st.refuse() != "" {
			err = errors.New(st.refuse())
		}
	}
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("the instruction directory %s: %w", dir, err)
	}
	return root, nil
}

// list returns the names of documents, sorted. Hidden files are ignored, because editors
// keep their own beside the edited one.
func list(root *os.Root) (names []string, over int, err error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, 0, err
	}
	defer d.Close()
	for all := 0; ; {
		some, err := d.Readdirnames(1024)
		for _, name := range some {
			if strings.HasSuffix(name, suffix) && name[0] != '.' {
				names = append(names, name)
			}
		}
		if all += len(some); all > maxEntries {
			return nil, 0, fmt.Errorf("it holds more than %d files", maxEntries)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, err
		}
	}
	slices.Sort(names)
	if len(names) > maxFiles {
		return names[:maxFiles], len(names) - maxFiles, nil
	}
	return names, 0, nil
}

// one looks at a name, and reads the file when it has changed and is complete.
func (s *scanner) one(root *os.Root, name string, now time.Time) {
	fi, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return // forget handles it
	}
	f := s.files[name]
	if f == nil {
		f = &file{}
		s.files[name] = f
	}
	f.gone = false
	var st stamp
	if err == nil {
		st, err = stampOf(fi)
	}
	if err != nil {
		f.fail(name, err.Error())
		f.stamp, f.moving = stamp{}, false
		return
	}
	if f.stamp != st {
		f.stamp, f.since, f.moving = st, now, true
	}
	if whole, ok := s.whole(name); f.moving && (ok && whole == st || st.quiet(now) || now.Sub(f.since) >= settle) {
		f.read(root, name)
	}
}

// fail marks the file as one that cannot be used.
func (f *file) fail(name, text string) {
	f.content, f.doc, f.problems = nil, nil, document.Problems{{File: plaintext.Name(name), Line: 1, Text: text}}
}

// read reads the file and parses it. A file that changes meanwhile is left to the next
// look.
func (f *file) read(root *os.Root, name string) {
	f.moving = false
	if text := f.refuse(name); text != "" {
		f.fail(name, text)
		return
	}
	content, whole, err := content(root, name, f.stamp)
	switch {
	case err != nil:
		f.fail(name, fmt.Sprintf("cannot be read: %v", bare(err)))
	case !whole:
		f.stamp, f.moving = stamp{}, true // the next stamp counts as new
	default:
		f.parse(name, content)
	}
}

func (f *file) parse(name string, content []byte) {
	d, err := document.Parse(name, content)
	var problems document.Problems
	switch {
	case err == nil:
		f.content, f.doc, f.problems = content, d, nil
	case errors.As(err, &problems):
		f.content, f.doc, f.problems = nil, nil, problems
	default:
		f.fail(name, err.Error())
	}
}

func (f *file) refuse(name string) string {
	switch {
	case plaintext.Name(name) != name:
		return "has a name that cannot be shown as it is"
	case !f.stamp.mode.IsRegular():
		return fmt.Sprintf("is %s: a document is a regular file", f.stamp.kind())
	case f.stamp.size > maxContent:
		return fmt.Sprintf("has %d bytes: a document has at most %d", f.stamp.size, maxContent)
	}
	return f.stamp.refuse()
}

// content reads a file that must have the stamp before and after. The open does not
// block, as it would for a named pipe that replaced the file meanwhile.
func content(root *os.Root, name string, st stamp) (content []byte, whole bool, err error) {
	f, err := root.OpenFile(name, os.O_RDONLY|asItIs, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	if same, err := st.is(f); err != nil || !same {
		return nil, false, err
	}
	if content, err = io.ReadAll(io.LimitReader(f, maxContent+1)); err != nil {
		return nil, false, err
	}
	same, err := st.is(f)
	return content, same && int64(len(content)) == st.size, err
}

// is reports whether an open file has the stamp.
func (s stamp) is(f *os.File) (bool, error) {
	fi, err := f.Stat()
	if err != nil {
		return false, err
	}
	st, err := stampOf(fi)
	return st == s, err
}

// forget removes files that are missing at two looks. Editors remove a file for a moment,
// so one look is not enough.
func (s *scanner) forget(names []string) {
	for name, f := range s.files {
		switch _, there := slices.BinarySearch(names, name); {
		case there:
		case f.gone:
			delete(s.files, name)
		default:
			f.gone = true
		}
	}
}

// bare returns an error without the path, which the problem has already.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
