//go:build !linux

package peer

import (
	"context"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// Observer looks at processes; on this system there is nothing that it could
// say of one: a pid can be reused, so it must not be used to find code.
type Observer struct{}

// NewObserver makes an Observer.
func NewObserver(Limits) *Observer { return &Observer{} }

// Observe has no evidence on this system.
func (o *Observer) Observe(context.Context, *attest.Credentials) Evidence { return Evidence{} }

// Image is a hold on a program, which this system cannot give.
type Image struct{}

// Holds is false: there is nothing that could tell.
func (m *Image) Holds() bool { return false }

// Retain keeps nothing.
func (m *Image) Retain() {}

// Release lets nothing go.
func (m *Image) Release() {}

// DescendantOf is not known on this system.
func DescendantOf(pid, ancestor int32) bool { return false }

// Watcher watches nothing on this system: the end of a process shows when its
// connection does.
type Watcher struct{}

// NewWatcher makes a Watcher.
func NewWatcher() (*Watcher, error) { return &Watcher{}, nil }

// Watch never calls dead.
func (w *Watcher) Watch(c *attest.Credentials, dead func()) error { return nil }

// Close does nothing.
func (w *Watcher) Close() error { return nil }
