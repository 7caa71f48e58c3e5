package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// pins opens the files of a configuration, each time it is loaded, through the directories
// in which they were found first (see durable.Pinned).
type pins struct {
	mu      sync.Mutex
	all     map[string]*durable.Pinned
	started bool // start was called
	secrets secret.Reader
	stats   stats
	before  map[string]stamp // of each secret, when it was read last, from before that
}

func newPins() *pins {
	p := &pins{all: make(map[string]*durable.Pinned), before: make(map[string]stamp)}
	p.secrets.Open = p.open
	return p
}

func (p *pins) open(path string) (*os.File, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	f, started, err := p.pinned(path)
	if err != nil {
		return nil, err
	}
	if started {
		if err := f.Exposed(); err != nil {
			return nil, err
		}
	}
	file, err := f.Open()
	if errors.Is(err, durable.ErrMoved) {
		err = fmt.Errorf("%w; if you moved it, restart the daemon", err)
	}
	return file, err
}

// pinned returns the pinned file at path, and whether start was called. No lock is held while the
// file system is asked, because one that does not answer must not stop the reading of other files.
func (p *pins) pinned(path string) (f *durable.Pinned, started bool, err error) {
	p.mu.Lock()
	f, started = p.all[path], p.started
	p.mu.Unlock()
	if f != nil {
		return f, started, nil
	}
	if f, err = durable.Pin(path); err != nil {
		return nil, false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if first := p.all[path]; first != nil {
		f.Close()
		return first, p.started, nil
	}
	p.all[path] = f
	return f, p.started, nil
}

// start is called after the first load. From then on open refuses files in directories in
// which other users can replace entries. start returns a warning for each such file:
// changes to it are not read.
func (p *pins) start() []config.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = true
	var out []config.Problem
	for path, f := range p.all {
		if err := f.Exposed(); err != nil {
			out = append(out, config.Problem{File: path, Problem: err.Error() + ": a change is not read while the daemon runs", Warning: true})
		}
	}
	return out
}

// secret reads the file of a reference. It is not for concurrent use.
func (p *pins) secret(path string) (secret.Value, error) {
	p.before[path] = p.stats.one(path)
	return p.secrets.ReadFile(path)
}

// stamps returns the stamps of files that were just read. Those of secrets are from before the
// reading: a secret that can be read a moment later has another one.
func (p *pins) stamps(paths []string) []stamp {
	out := p.stats.of(paths)
	for i, path := range paths {
		if before, ok := p.before[path]; ok {
			out[i] = before
		}
	}
	return out
}

// stamp identifies a state of a file; without info there is none. Files of some systems all
// have the same time, and a change of the owner or the mode can make a file usable.
type stamp struct{ info os.FileInfo }

func (s stamp) equal(t stamp) bool {
	if s.info == nil || t.info == nil {
		return s.info == nil && t.info == nil
	}
	return os.SameFile(s.info, t.info) && s.info.Size() == t.info.Size() && s.info.ModTime().Equal(t.info.ModTime()) && s.info.Mode() == t.info.Mode() && owned(s.info) == owned(t.info)
}

// owned returns user and group of a file.
func owned(info os.FileInfo) [2]uint32 {
	uid, gid, _ := peer.Owner(info)
	return [2]uint32{uid, gid}
}

// stats makes stamps. A file whose file system does not answer has none until it answers; it is
// asked once, because each question takes a thread. The zero stats is ready; it is not for
// concurrent use.
type stats struct{ asked map[string]chan os.FileInfo }

// statTime is how long the answer of a file system is waited for.
const statTime = time.Second

func (s *stats) of(paths []string) []stamp {
	var out []stamp
	for _, path := range paths {
		out = append(out, s.one(path))
	}
	return out
}

func (s *stats) one(path string) stamp {
	answer := s.asked[path]
	if answer == nil {
		answer = make(chan os.FileInfo, 1)
		go func() {
			info, _ := os.Stat(path) // nil after an error
			answer <- info
		}()
	}
	delete(s.asked, path)
	select {
	case info := <-answer:
		return stamp{info}
	case <-time.After(statTime):
	}
	if s.asked == nil {
		s.asked = make(map[string]chan os.FileInfo)
	}
	s.asked[path] = answer
	return stamp{}
}
