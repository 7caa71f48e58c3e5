package main

import (
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
}

func newPins() *pins { return &pins{all: make(map[string]*durable.Pinned)} }

func (p *pins) open(path string) (*os.File, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.all[path]
	if f == nil {
		if f, err = durable.Pin(path); err != nil {
			return nil, err
		}
		p.all[path] = f
	}
	if p.started {
		if err := f.Exposed(); err != nil {
			return nil, err
		}
	}
	return f.Open()
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
func (p *pins) secret(path string) (secret.Value, error) { return secret.ReadFileBy(path, p.open) }
