package front

import (
	"context"
	"net/http"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

// Signs of life. A request is a sign of life when it arrives. An open stream is one as long
// as its client reads it: a keep-alive is written, and a moment later the socket is checked
// for unread bytes. A successful write alone proves nothing, because the kernel accepts it
// for a stopped process. A stopped process therefore gives no further sign, however long its
// stream stays open; a read before it was stopped may be noticed one keep-alive late.
//
// A waiting request is observed in the same way once its answer has become a stream, which
// happens after streamAfter. A client that accepts no stream gives no sign between two
// requests, because nothing is written to it.

// lookAfter is the time between a keep-alive and the first check whether it was read.
const lookAfter = time.Second

// seen reports a sign of life.
func (d *Door) seen(who *principal.Principal, s *Session) {
	if d.o.Seen == nil {
		return
	}
	digest := ""
	if s != nil {
		digest = s.Digest
	}
	d.o.Seen(who, digest)
}

// unread returns the function that measures a request's connection; nil if signs of life are
// not reported or cannot be measured.
func (o *Options) unread(ctx context.Context) func() (int, error) {
	if o.Seen == nil || o.Unread == nil {
		return nil
	}
	return o.Unread(ctx)
}

// hearing observes whether the answer of a POST is read, as a sign of life of who and s.
type hearing struct {
	door *Door
	r    *http.Request // whose connection is measured
	who  *principal.Principal
	s    *Session // nil: a request without a session

	unread func() (int, error)
	due    bool // data was written and has not been found read
	look   bool // the next tick only checks
}

func (d *Door) hearing(in *inbound, s *Session) hearing {
	return hearing{door: d, r: in.r, who: in.who, s: s}
}

// written notes that there is data to read, and returns the time until the check.
func (h *hearing) written() time.Duration {
	h.measure()
	if h.unread == nil {
		return keepAlive
	}
	h.due, h.look = true, true
	return lookAfter
}

// measure finds out how the connection is measured, and drops the request of net/http.
func (h *hearing) measure() {
	if h.r != nil {
		h.unread, h.r = h.door.o.unread(h.r.Context()), nil
	}
}

// looks reports that this tick only checks and does not write.
func (h *hearing) looks() bool {
	look := h.look
	h.look = false
	return look
}

// listen reports a sign of life if the client has read what is due.
func (h *hearing) listen() {
	if h.due && allRead(h.unread) {
		h.due = false
		h.door.seen(h.who, h.s)
	}
}

// beat sends a keep-alive on every stream of the sessions.
func (d *Door) beat() {
	d.Each(func(s *Session) bool { s.nudge(); return true })
}

// hearAll reports a sign of life for every session whose keep-alive has been read.
func (d *Door) hearAll() {
	if d.o.Seen == nil || d.o.Unread == nil {
		return
	}
	d.Each(func(s *Session) bool {
		if s.heard() {
			d.seen(s.Owner(), s)
		}
		return true
	})
}
