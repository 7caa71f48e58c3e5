package listen

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/downstream/peer"
)

// Holders finds the process that holds the other end of a loopback connection. Still
// reports whether that process still holds it.
type Holders interface {
	Find(local, remote netip.AddrPort) (peer.Holder, error)
	Still(peer.Holder) bool
}

// holderKept is how long an answer of Holders is used.
const holderKept = time.Second

// holding is the last result of the search for the process at the other end.
type holding struct {
	mu     sync.Mutex
	holder peer.Holder
	err    error
	at     time.Time // zero: no search was made
}

func (h *holding) found() peer.Holder {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holder
}

// Holder returns the process that holds the other end of a TCP connection within this
// machine, at most one second old. peer.ErrUnavailable: the connection comes from another
// machine, or the system cannot tell.
func (o *Origin) Holder() (peer.Holder, error) {
	if o == nil || !o.here() || o.Listener.opts.Holders == nil {
		return peer.Holder{}, peer.ErrUnavailable
	}
	h, holders := &o.holder, o.Listener.opts.Holders
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.at.IsZero():
	case time.Since(h.at) < holderKept:
		return h.holder, h.err
	case h.err == nil && holders.Still(h.holder):
		h.at = time.Now()
		return h.holder, nil
	}
	h.holder, h.err = holders.Find(o.Local, o.Remote)
	h.at = time.Now()
	return h.holder, h.err
}

// here reports whether the other end is on this machine, by its address.
func (o *Origin) here() bool {
	remote := o.Remote.Addr()
	return remote.IsValid() && (remote.IsLoopback() || remote == o.Local.Addr())
}

// local reports whether the other end must be on this machine, by the listener or its address.
func (o *Origin) local() bool { return o.Listener.Loopback || o.here() }

// stampHolder checks the process that holds the other end of a loopback connection: there
// must be one, and it must not belong to the daemon.
func (o *Origin) stampHolder() (reason string) {
	o.held = true
	holder, err := o.Holder()
	switch {
	case errors.Is(err, peer.ErrNotFound):
		return ReasonNoOwner
	case err != nil:
		return ReasonNoHolder
	case holder.Inside:
		return ReasonOwnSocket
	}
	return ""
}

// changedHands repeats that check when data arrives. A socket that has no holder because
// it was closed is accepted, so that its last bytes are read.
func (o *Origin) changedHands() (reason string) {
	if !o.held {
		return ""
	}
	if reason = o.stampHolder(); reason == ReasonNoOwner {
		return ""
	}
	return reason
}
