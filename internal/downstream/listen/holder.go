package listen

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/downstream/peer"
)

// Holders finds the process that holds the other end of a loopback connection.
// Still reports whether one that was found is still the same.
type Holders interface {
	Find(local, remote netip.AddrPort) (peer.Holder, error)
	Still(peer.Holder) bool
}

// holderKept is how long the answer of Holders is taken for true.
const holderKept = time.Second

// holding is the process at the other end as it was found last.
type holding struct {
	mu     sync.Mutex
	holder peer.Holder
	err    error
	at     time.Time // zero: it was never looked for
}

func (h *holding) found() peer.Holder {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holder
}

// Holder is the process that holds the other end of a connection over TCP
// within this machine, as it was within the last second. peer.ErrUnavailable:
// the connection comes from elsewhere, or the system cannot tell.
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

// stampHolder judges a loopback connection by the process that holds its other
// end: there has to be one, and it is not one of the daemon's own.
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

// changedHands judges such a connection again when data arrives on it. A socket
// without a holder because it was closed is accepted: its last bytes count.
func (o *Origin) changedHands() (reason string) {
	if !o.held {
		return ""
	}
	if reason = o.stampHolder(); reason == ReasonNoOwner {
		return ""
	}
	return reason
}
