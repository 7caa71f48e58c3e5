//go:build !linux

package peer

import (
	"context"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// Observer has no evidence on this system: a pid can be reused, so it must not be used to
// find code.
type Observer struct{}

// NewObserver makes an Observer.
func NewObserver(Limits) *Observer { return &Observer{} }

// Observe returns no evidence on this system.
func (o *Observer) Observe(context.Context, *attest.Credentials) Evidence { return Evidence{} }

// Image does not exist on this system.
type Image struct{}

// Holds is false.
func (m *Image) Holds() bool { return false }

// Retain does nothing.
func (m *Image) Retain() {}

// Release does nothing.
func (m *Image) Release() {}

// DescendantOf is false: this system does not report it.
func DescendantOf(pid, ancestor int32) bool { return false }

// Watcher watches nothing on this system: the end of a process is noticed when its
// connection ends.
type Watcher struct{}

// NewWatcher makes a Watcher.
func NewWatcher() (*Watcher, error) { return &Watcher{}, nil }

// Watch never calls dead.
func (w *Watcher) Watch(c *attest.Credentials, dead func()) error { return nil }

// Close does nothing.
func (w *Watcher) Close() error { return nil }
