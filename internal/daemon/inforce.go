package daemon

import (
	"sync"

	"github.com/doorward/doorward/internal/daemon/admin"
)

// inForce holds the result of the last reload, for the status. The zero value: there was none.
type inForce struct {
	mu   sync.Mutex
	last admin.Configuration
}

// failed keeps the reason why the last reload changed nothing.
func (f *inForce) failed(reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last.NotReloaded = reason
}

// took keeps the changed sections that a reload could not take over.
func (f *inForce) took(restart []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = admin.Configuration{Restart: restart}
}

// shown returns the state of the configuration that was read from a file.
func (f *inForce) shown(file string) admin.Configuration {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.last
	out.File = file
	return out
}
