package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrMoved is wrapped by the errors of a Pinned whose path now leads through other
// directories than at the time of Pin, or cannot be followed. If a directory is missing,
// the error also wraps fs.ErrNotExist.
var ErrMoved = errors.New("its path now leads through another directory")

// Pinned is a file that is read repeatedly under one name. A program that may
// rename a directory above the file could replace it by a tree of its own. A
// Pinned therefore remembers every directory of the path, and opens the file only in
// the directory of the time of Pin, and only while the path still leads there. The file
// itself may be replaced, as editors do. The file may be a symbolic link. A relative link
// may lead to a file of its directory or of a directory below. Any link may lead to a file
// of the directory to which it led at the time of Pin. Directories below are not
// remembered.
//
// Limit: moving the directories away, writing there and moving them back is not
// noticed. A sandbox has to prevent that.
type Pinned struct {
	path   string
	steps  []step
	dir    *os.Root
	target *Pinned // target of the file's own link, if it was outside of dir; otherwise nil
}

// step is one directory of a path.
type step struct {
	path string
	is   fs.FileInfo
}

// maxLinks is the most symbolic links of a path.
const maxLinks = 40

// Pin pins the path of a file. The directory must exist, the file need not.
// The caller must call Close.
func Pin(path string) (*Pinned, error) { return pin(path, maxLinks) }

func pin(path string, links int) (*Pinned, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	p := &Pinned{path: path}
	if p.steps, err = walk(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if p.dir, err = OpenRoot(p.last().path); err != nil {
		return nil, err
	}
	if err := p.held(); err != nil {
		p.Close()
		return nil, err
	}
	to, ok := p.leads()
	if !ok {
		return p, nil
	}
	if links == 0 {
		p.Close()
		return nil, fmt.Errorf("%s: there are too many symbolic links", path)
	}
	if p.target, err = pin(to, links-1); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Pinned) last() step { return p.steps[len(p.steps)-1] }

// leads returns the target of the file's own link, if it is outside of the directory.
func (p *Pinned) leads() (to string, ok bool) {
	name := filepath.Base(p.path)
	if to, err := p.dir.Readlink(name); err == nil {
		if _, err := p.dir.Stat(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			if !filepath.IsAbs(to) {
				to = filepath.Join(p.last().path, to)
			}
			return to, true
		}
	}
	return "", false
}

// Exposed returns an error that names a directory of the path in which other users can
// replace entries; nil: there is none.
func (p *Pinned) Exposed() error {
	for _, s := range p.steps {
		if err := judgeAncestor(s.is); err != nil {
			return fmt.Errorf("the directory %s cannot be trusted: %w", s.path, err)
		}
	}
	if p.target != nil {
		return p.target.Exposed()
	}
	return nil
}

// Close closes the directories.
func (p *Pinned) Close() {
	p.dir.Close()
	if p.target != nil {
		p.target.Close()
	}
}

// Path returns the absolute path.
func (p *Pinned) Path() string { return p.path }

// held checks that the open directory is the last step of the path.
func (p *Pinned) held() error {
	is, err := p.dir.Stat(".")
	if err != nil {
		return named(err, p.last().path)
	}
	if !os.SameFile(is, p.last().is) {
		return fmt.Errorf("%s: %w", p.path, ErrMoved)
	}
	return nil
}

// Check checks that the path of the file's directory still leads through the same
// directories. Otherwise the error wraps ErrMoved.
func (p *Pinned) Check() error {
	now, err := walk(filepath.Dir(p.path))
	if err != nil {
		return fmt.Errorf("%s: %w (%w)", p.path, ErrMoved, err)
	}
	return p.compare(now)
}

func (p *Pinned) compare(now []step) error {
	for i, s := range now {
		if i >= len(p.steps) || !os.SameFile(s.is, p.steps[i].is) {
			return fmt.Errorf("%s: %w (%s)", p.path, ErrMoved, s.path)
		}
	}
	if len(now) < len(p.steps) {
		return fmt.Errorf("%s: %w", p.path, ErrMoved)
	}
	return p.held()
}

// Open opens the file to read it. The caller must close it. Open does not block, and it
// does not check what it opens: the file can be a pipe or a directory, of any owner and
// mode. If the path or a link leads elsewhere than the type permits, the error wraps
// ErrMoved. If there is no such file, it wraps fs.ErrNotExist and not ErrMoved.
func (p *Pinned) Open() (*os.File, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	to, ok := p.leads()
	if !ok {
		f, err := p.dir.OpenFile(filepath.Base(p.path), os.O_RDONLY|syscall.O_NONBLOCK, 0)
		return f, named(err, p.path)
	}
	if p.target == nil {
		return nil, fmt.Errorf("%s: %w (it is now a symbolic link to %s)", p.path, ErrMoved, to)
	}
	return p.target.openAs(to)
}

// openAs opens another file of the same directory.
func (p *Pinned) openAs(path string) (*os.File, error) {
	other := *p
	other.path = filepath.Clean(path)
	return other.Open()
}

// Stat opens the file and returns its description.
func (p *Pinned) Stat() (fs.FileInfo, error) {
	f, err := p.Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Stat()
}

// Root returns the file's directory, and the error of Check.
func (p *Pinned) Root() (*os.Root, error) { return p.dir, p.Check() }

// walk resolves an absolute path as the kernel does, and returns the directories on the way.
func walk(path string) ([]step, error) {
	at := filepath.VolumeName(path) + string(filepath.Separator)
	root, err := os.Lstat(at)
	if err != nil {
		return nil, err
	}
	steps, todo := []step{{at, root}}, parts(path)
	for links := 0; len(todo) > 0; {
		next := filepath.Join(at, todo[0])
		todo = todo[1:]
		fi, err := os.Lstat(next)
		if err != nil {
			return nil, err
		}
		if fi.Mode()&fs.ModeSymlink == 0 {
			at, steps = next, append(steps, step{next, fi})
			continue
		}
		if links++; links > maxLinks {
			return nil, fmt.Errorf("%s: there are too many symbolic links", path)
		}
		to, err := os.Readlink(next)
		if err != nil {
			return nil, err
		}
		if filepath.IsAbs(to) {
			at = filepath.VolumeName(to) + string(filepath.Separator)
		}
		todo = append(parts(to), todo...)
	}
	return steps, nil
}

// parts returns the names of a path, including `..`.
func parts(path string) []string {
	return strings.FieldsFunc(path[len(filepath.VolumeName(path)):], func(r rune) bool { return r == '/' || r == filepath.Separator })
}
