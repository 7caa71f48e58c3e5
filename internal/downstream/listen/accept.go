package listen

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// Refusal describes a connection that was refused at the accept, or closed later because
// of its data, with the kernel's facts about its other end.
type Refusal struct {
	Reason string              // one of the Reason constants
	Peer   *attest.Credentials // of a Unix peer, valid during the call; nil: unknown
	Owner  Ownership           // of a loopback connection
	UID    uint32              // the owner, when Owner is OwnerSame or OwnerOther
	Holder peer.Holder         // zero where none was found
}

func (l *Listener) refuse(o *Origin, reason string) {
	for i, r := range reasons {
		if r == reason {
			l.refused[i].Add(1)
		}
	}
	l.opts.OnRefused(Refusal{Reason: reason, Peer: o.Peer, Owner: o.Owner, UID: o.OwnerUID, Holder: o.holder.found()})
}

func (l *Listener) start() {
	for _, s := range l.sockets {
		l.loops.Go(func() { l.loop(s) })
	}
	if l.Rests() {
		l.loops.Go(l.tend)
	}
}

// loop accepts until the socket is closed. After any other error (no descriptors left, a
// connection that broke in the queue) it waits and retries: passed to http.Server, the
// error would end the server.
func (l *Listener) loop(s net.Listener) {
	wait := time.Duration(0)
	for {
		c, err := s.Accept()
		switch {
		case err == nil:
			wait = 0
			l.admit(c)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			l.refuse(&Origin{}, ReasonAcceptFailed)
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(wait):
			case <-l.done:
				return
			}
		}
	}
}

// admit examines a connection and counts it, or closes it.
func (l *Listener) admit(c net.Conn) {
	stamped := &conn{Conn: c}
	o := &stamped.origin
	o.Listener, o.Local, o.Remote = l, addrPort(c.LocalAddr()), addrPort(c.RemoteAddr())
	switch {
	case !o.local():
		l.examine(stamped)
	case l.seats.begin():
		l.loops.Go(func() { l.examine(stamped) }) // a search takes time, and the accept loop must not wait for it
	default:
		c.Close()
		l.refuse(&Origin{}, ReasonTooMany)
	}
}

// seat returns the seat of a connection whose owner was looked for.
func (o *Origin) seat() seat {
	switch remote := o.Remote.Addr(); {
	case o.Listener.trusts(remote):
		return seat{}
	case o.Owner == OwnerOther:
		return seat{other: true, uid: o.OwnerUID}
	case o.local():
		return seat{}
	default:
		return remoteSeat(remote)
	}
}

// take counts a connection. On a full listener one that serves no authenticated caller gives way.
func (l *Listener) take(c *conn) (reason string) {
	at := c.origin.seat()
	reason = l.seats.take(at)
	for reason == ReasonTooMany && l.yielding.giveWay(at, l.seats.count) { // another one can take the place first
		reason = l.seats.take(at)
	}
	if reason == "" {
		c.seat = &at
		l.yielding.add(c)
	}
	return reason
}

// examine gets the kernel's facts about a connection before its first byte is read, and
// passes it to Accept or closes it.
func (l *Listener) examine(c *conn) {
	reason := l.stamp(c.Conn, &c.origin)
	if c.origin.local() {
		l.seats.known()
	}
	if reason == "" {
		reason = l.take(c)
	}
	if reason == "" {
		reason = l.guard(c)
	}
	if reason != "" {
		c.end()
		l.refuse(&c.origin, reason)
		return
	}
	var out net.Conn = c
	if l.tls != nil {
		out = tls.Server(c, l.tls.config())
	}
	select {
	case l.ready <- out:
	case <-l.done:
		c.end()
	}
}

// stamp identifies the peer. If reason is not empty, the connection must be closed.
func (l *Listener) stamp(c net.Conn, o *Origin) (reason string) {
	if u, ok := c.(*net.UnixConn); ok {
		return l.stampUnix(u, o)
	}
	if !o.local() {
		return ""
	}
	reason = o.stampOwner(peer.OwnerOfTCP)
	if l.AuthEnforced {
		return "" // the token decides; the owner only distinguishes and limits callers
	}
	if reason == "" && o.Owner == OwnerSame && l.opts.Holders != nil {
		return o.stampHolder()
	}
	return reason
}

func (l *Listener) stampUnix(c *net.UnixConn, o *Origin) (reason string) {
	creds, err := attest.OfUnix(c)
	if err != nil {
		return ReasonUnattested
	}
	o.Peer = creds // closed with the connection from here on
	switch {
	case creds.UID != uint32(os.Geteuid()):
		return ReasonOtherUser
	case l.spawned(creds, o):
		return ""
	case creds.Foreign && !l.opts.allowForeign:
		return ReasonForeign
	case l.opts.OwnChild != nil && l.opts.OwnChild(creds):
		return ReasonOwnChild
	}
	return ""
}

// spawned sets the started agent whose process tree contains a peer, and reports whether
// there is one. The lookup uses the process number; that the process is alive afterwards
// proves that the number was not reused.
func (l *Listener) spawned(creds *attest.Credentials, o *Origin) bool {
	if l.opts.Spawned == nil || creds.PID <= 0 {
		return false
	}
	id := l.opts.Spawned(creds)
	if id == "" || !creds.Alive() {
		return false
	}
	o.Spawn = id
	return true
}

// guard restricts the reads of a Unix connection to bytes that its peer wrote, and closes
// the connection when the peer's process ends.
func (l *Listener) guard(c *conn) (reason string) {
	u, ok := c.Conn.(*net.UnixConn)
	if !ok {
		return ""
	}
	c.Conn = attest.Guard(u, c.origin.Peer, func(reason string) { l.refuse(&c.origin, reason) })
	if err := l.unix.watcher.Watch(c.origin.Peer, func() { c.end() }); err != nil {
		return ReasonUnattested
	}
	return ""
}

// stampOwner finds the owner of the socket at the other end. A socket of another user, or
// without an owner, is refused. If the system cannot tell, the connection is accepted
// with fewer facts.
func (o *Origin) stampOwner(owner func(local, remote netip.AddrPort) (uint32, error)) (reason string) {
	uid, err := owner(o.Local, o.Remote)
	switch {
	case err == nil && uid == uint32(os.Geteuid()):
		o.Owner, o.OwnerUID = OwnerSame, uid
		return ""
	case err == nil:
		o.Owner, o.OwnerUID = OwnerOther, uid
		return ReasonOtherOwner
	case errors.Is(err, peer.ErrUnavailable):
		o.Owner = OwnerUnknown
		return ""
	}
	return ReasonNoOwner
}
