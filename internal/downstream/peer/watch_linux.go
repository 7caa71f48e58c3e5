package peer

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// Watcher reports the ends of processes.
type Watcher struct{ poller }

// NewWatcher starts a Watcher. Close ends it.
func NewWatcher() (*Watcher, error) {
	w := &Watcher{}
	if err := w.open(unix.EPOLLIN); err != nil {
		return nil, fmt.Errorf("watching processes: %w", err)
	}
	return w, nil
}

// Watch calls dead once when the process of c ends, also when it has already ended. dead
// runs on the watcher's goroutine and must not block. Closing c ends the watch. Without a
// handle on the process (before Linux 5.3) nothing is watched, and the end of the process
// is noticed at the next read from its connection.
func (w *Watcher) Watch(c *attest.Credentials, dead func()) error {
	ticket := w.enter(dead)
	watched, err := c.Handle(func(pidfd int) error { return w.add(pidfd, ticket) }, func() { w.take(ticket) })
	if !watched {
		w.take(ticket)
	}
	return err
}
