package daemon

import (
	"sync/atomic"

	"github.com/doorward/doorward/internal/daemon/admin"
)

// inForce holds the result of the last reload, for the status. The zero value: there was none.
type inForce struct {
	last atomic.Pointer[admin.Configuration]
}

// failed keeps the reason why the last reload changed nothing.
func (f *inForce) failed(reason string) {
	f.last.Store(&admin.Configuration{NotReloaded: reason, Restart: f.shown("").Restart})
}

// took keeps the changed sections that a reload could not take over.
func (f *inForce) took(restart []string) { f.last.Store(&admin.Configuration{Restart: restart}) }

// shown returns the state of the configuration that was read from a file.
func (f *inForce) shown(file string) admin.Configuration {
	out := admin.Configuration{}
	if last := f.last.Load(); last != nil {
		out = *last
	}
	out.File = file
	return out
}
