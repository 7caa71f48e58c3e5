package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
)

// pins opens the files of a configuration, each time it is loaded, through the directories
// in which they were found first (see durable.Pinned).
type pins struct {
	mu      sync.Mutex
	all     map[string]*durable.Pinned
	started bool // start was called
	secrets secret.Reader
}

func newPins() *pins {
	p := &pins{all: make(map[string]*durable.Pinned)}
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

// secret reads the file of a reference.
func (p *pins) secret(path string) (secret.Value, error) { return p.secrets.ReadFile(path) }
