package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/doorward/doorward/internal/downstream/peer"
)

func openTCP(ctx context.Context, s Spec, c Credential, o Options, lookup resolver) (*Listener, error) {
	a := classify(ctx, s.Addr, lookup)
	d := decide(s, a, c)
	if !d.Listen {
		return nil, &RefusedError{Addr: s.Addr, Reason: d.Reason}
	}
	a, err := a.resolve(ctx, lookup)
	if err != nil {
		return nil, refuse(s.Addr, err)
	}
	l := newListener(s, o)
	l.Loopback, l.AuthEnforced = d.Loopback, d.Enforce
	if s.CertFile != "" {
		if l.tls, err = newCertificate(s.CertFile, s.KeyFile, o.OnNotice); err != nil {
			return nil, refuse(s.Addr, err)
		}
		l.TLS = true
	}
	if l.sockets, err = bindAll(ctx, a); err != nil {
		return nil, refuse(s.Addr, err)
	}
	l.rules = tcpRules(s, a, boundEnds(l.sockets))
	l.start()
	return l, nil
}

func newListener(s Spec, o Options) *Listener {
	l := &Listener{Spec: s, opts: o, ready: make(chan net.Conn), done: make(chan struct{})}
	l.seats = newSeats(o.MaxConns, o.MaxPerRemote)
	return l
}

func refuse(addr string, err error) *RefusedError {
	var op *net.OpError
	reason := err.Error()
	if errors.As(err, &op) && op.Op == "listen" {
		reason = op.Err.Error()
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		reason += ": another program listens there, such as a second daemon; stop it, or set another port in addr"
	case op != nil && op.Net != "unix" && errors.Is(err, syscall.EACCES):
		reason += ": ports below 1024 need a capability of root; set another port in addr"
	}
	return &RefusedError{Addr: addr, Reason: reason, Err: err}
}

// bindAll binds every end. With port 0 the port of the first end is used for all. An
// address of localhost that this machine does not have (IPv6 is off, but in the hosts
// file) is left out if another one can be bound. An address in use by another program is
// an error, because callers of localhost might reach that program.
func bindAll(ctx context.Context, a address) ([]net.Listener, error) {
	if a.port != 0 || len(a.ends) == 1 {
		return bindOnce(ctx, a)
	}
	var err error
	for range 8 { // the port may be in use on the second address
		var ls []net.Listener
		if ls, err = bindOnce(ctx, a); err == nil {
			return ls, nil
		}
	}
	return nil, err
}

func bindOnce(ctx context.Context, a address) ([]net.Listener, error) {
	var ls []net.Listener
	var missing error
	port := a.port
	for _, end := range a.ends {
		l, err := bind(ctx, netip.AddrPortFrom(end.Addr(), port), a.dual)
		if peer.NoSuchAddress(err) && len(a.ends) > 1 {
			missing = err
			continue
		}
		if err != nil {
			closeAll(ls)
			return nil, err
		}
		ls = append(ls, l)
		port = boundEnds(ls)[0].Port()
	}
	if len(ls) == 0 {
		return nil, missing
	}
	return ls, nil
}

// bind binds the classified address, never its text, and checks the bound address. MPTCP,
// which Go enables by default, is off, because Landlock and the socket table do not cover
// it.
func bind(ctx context.Context, end netip.AddrPort, dual bool) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 30 * time.Second, Interval: 15 * time.Second, Count: 4,
	}}
	lc.SetMultipathTCP(false)
	network := "tcp6"
	switch {
	case dual:
		network = "tcp" // the wildcard of both families
	case end.Addr().Is4():
		network = "tcp4"
	}
	l, err := lc.Listen(ctx, network, end.String())
	if err != nil {
		return nil, err
	}
	if err := sameEnd(end, boundEnds([]net.Listener{l})[0]); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func sameEnd(want, got netip.AddrPort) error {
	if got.Addr() != want.Addr() || want.Port() != 0 && got.Port() != want.Port() {
		return fmt.Errorf("bound %v instead of %v, closed again", got, want)
	}
	return nil
}

func boundEnds(ls []net.Listener) []netip.AddrPort {
	var ends []netip.AddrPort
	for _, l := range ls {
		ends = append(ends, addrPort(l.Addr()))
	}
	return ends
}
