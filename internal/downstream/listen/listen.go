// Package listen opens the Unix socket and the TCP listeners. It decides the bind table
// before any port is bound, and every accepted connection carries the kernel's facts
// about it.
//
// Invariants: an address that is not certainly loopback is served with authentication or
// not at all. The classified address is bound, never the text it came from. No name but
// `localhost` is resolved to classify it. Accept returns only connections whose peer was
// attested (Unix) or whose holder was found (loopback TCP without a token).
//
// A connection of the Unix socket belongs to the process that connected it: bytes written
// by another process are not read, and the connection ends with the process.
//
// The contexts of the requests that a connection carries end when its client closes it, and
// when it is closed here (Alert).
//
// A refused connection is closed, counted and reported to Options.OnRefused; it
// never ends the accept loop.
package listen

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// Values of Spec.Auth. Empty means AuthAuto.
const (
	AuthAuto     = "auto"     // the bind table decides
	AuthRequired = "required" // a token on every request, on loopback too
	AuthNone     = "none"     // no token needed; loopback only
)

// Spec is one listener as configured.
type Spec struct {
	Network string // "unix" or "tcp"

	// Addr is a path or "auto" for unix. For tcp it is HOST:PORT, where HOST is an IP
	// literal, `localhost`, or another name. Another name is never loopback, and it is
	// resolved only if the listener enforces authentication.
	Addr string

	Auth              string   // AuthAuto, AuthRequired or AuthNone; tcp only
	CertFile, KeyFile string   // both or neither; tcp only
	RequireTLS        bool     // without TLS, refuse instead of warning
	Hosts             []string // further Host values, NAME or NAME:PORT
	Origins           []string // further Origin values, exact

	// TrustedProxies are the networks from which a Forwarded or X-Forwarded-For
	// header names the client; see Origin.Client.
	TrustedProxies []netip.Prefix
}

// Options holds the options of all listeners. The zero value has working limits.
type Options struct {
	// RuntimeDir holds doorward.sock when a Spec says "auto".
	RuntimeDir string

	// MaxConns is the maximum number of open connections of one listener; 0 means
	// 4096. MaxPerRemote is the maximum from one remote address (an IPv6 /64 counts
	// as one) or of one other user of this machine, all of which have three quarters
	// together; 0 means 256. It does not apply to the daemon's own user, or to trusted
	// proxies.
	MaxConns, MaxPerRemote int

	// allowForeign admits Unix peers of another pid or mount namespace, of which only the
	// uid is meaningful. Only tests set it.
	allowForeign bool

	// OwnChild reports whether the daemon started a Unix peer that must not connect: a
	// server must not call as the user it runs for. nil: no peer is checked. It runs on
	// the accept loop.
	OwnChild func(*attest.Credentials) bool

	// Spawned returns the started agent whose process tree contains a Unix peer; empty:
	// none. Such a peer is admitted although the daemon started it, and Origin.Spawn
	// identifies it: it is served as that agent or not at all. It is called before
	// OwnChild, on the accept loop. nil: there are no agents.
	Spawned func(*attest.Credentials) string

	// Holders finds the process at the other end of a loopback connection. On listeners
	// without a token, the connection is checked by that process: at the accept, and
	// again before bytes are read that arrive later than holderKept after the last
	// search. Connections are checked outside the accept loop. nil: no search; only the
	// socket's owner is checked.
	Holders Holders

	// OnRefused is called for each connection that was refused at the accept or later. It
	// runs on the accept loop or on the goroutine of a connection and must not block.
	OnRefused func(Refusal)

	// Arrivals reports data on connections that rest. nil: they do not rest.
	Arrivals *peer.Arrivals

	// OnNotice is called with text for the operator, for instance that a certificate was
	// reloaded. It must not block.
	OnNotice func(text string)
}

func (o Options) withDefaults() Options {
	if o.MaxConns <= 0 {
		o.MaxConns = 4096
	}
	if o.MaxPerRemote <= 0 {
		o.MaxPerRemote = 256
	}
	if o.OnRefused == nil {
		o.OnRefused = func(Refusal) {}
	}
	if o.OnNotice == nil {
		o.OnNotice = func(string) {}
	}
	return o
}

// Listener is an open listener. Its fields do not change after Open.
type Listener struct {
	Spec
	Loopback     bool // a loopback address by classification; false for unix
	AuthEnforced bool // every request needs a credential
	TLS          bool // speaks TLS

	opts     Options
	sockets  []net.Listener
	rules    rules
	tls      *certificate // nil without TLS
	unix     *unixSocket  // nil for tcp
	seats    seats
	resting  resting
	yielding yielding

	ready   chan net.Conn
	done    chan struct{}
	loops   sync.WaitGroup
	close   sync.Once
	closed  error
	refused [len(reasons)]atomic.Uint64
}

// Addr returns the bound address: "127.0.0.1:7866", "[::1]:7866", or the path of the
// socket. If there are several (localhost), it is the first.
func (l *Listener) Addr() string { return l.sockets[0].Addr().String() }

// Addrs returns all bound addresses.
func (l *Listener) Addrs() []string {
	var all []string
	for _, s := range l.sockets {
		all = append(all, s.Addr().String())
	}
	return all
}

// URL returns the text that `serve` prints: "http://127.0.0.1:7866", "https://…" or
// "unix:PATH".
func (l *Listener) URL() string {
	switch {
	case l.Network == "unix":
		return "unix:" + l.Addr()
	case l.TLS:
		return "https://" + l.Addr()
	}
	return "http://" + l.Addr()
}

// Local reports whether all callers of this listener are on this machine: it is the Unix
// socket or a loopback listener. A wildcard listener is not local, even for a caller that
// connects to 127.0.0.1.
func (l *Listener) Local() bool { return l.Network == "unix" || l.Loopback }

// Rests reports whether idle connections of the listener rest.
func (l *Listener) Rests() bool { return l.opts.Arrivals != nil && l.tls == nil }

// Accept waits for the next admitted connection. It fails only after the listener was
// closed, with net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Net returns the listener as a net.Listener for http.Server.Serve.
func (l *Listener) Net() net.Listener { return netListener{l} }

type netListener struct{ *Listener }

func (n netListener) Addr() net.Addr { return n.sockets[0].Addr() }

// Close stops accepting and frees the address. Open connections stay open; the end of a
// Unix peer is then noticed only at the next read. Close may be called more than once.
func (l *Listener) Close() error {
	l.close.Do(func() {
		close(l.done)
		l.closed = closeAll(l.sockets)
		l.loops.Wait()
		if l.unix != nil {
			l.unix.release()
		}
	})
	return l.closed
}

func closeAll(ls []net.Listener) error {
	var err error
	for _, l := range ls {
		err = errors.Join(err, l.Close())
	}
	return err
}

// Open returns the number of open connections.
func (l *Listener) Open() int { return l.seats.taken() }

// Refused returns the number of connections that were refused at the accept, or closed
// later because of their data, by reason. Reasons that did not occur are left out.
func (l *Listener) Refused() map[string]uint64 {
	counts := map[string]uint64{}
	for i, reason := range reasons {
		if n := l.refused[i].Load(); n > 0 {
			counts[reason] = n
		}
	}
	return counts
}

// RefusedError is the reason why a listener is not opened. Nothing is bound then, and the
// rest of the daemon continues. Reason is one line for the operator with the remedies; it
// never contains a token.
type RefusedError struct {
	Addr   string // as configured; "unix:PATH" for the socket
	Reason string
	Err    error // the error of the system, or nil
}

func (e *RefusedError) Error() string {
	return "listener " + plaintext.Name(e.Addr) + " refused: " + e.Reason
}

func (e *RefusedError) Unwrap() error { return e.Err }

// Open decides about one listener and opens it. The error is a *RefusedError. ctx bounds
// the opening only.
func Open(ctx context.Context, s Spec, c Credential, o Options) (*Listener, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if s.Network == "unix" {
		return openUnix(ctx, s, o.withDefaults())
	}
	return openTCP(ctx, s, c, o.withDefaults(), systemResolver)
}

// openTimeout bounds the opening, so that a dead resolver does not delay the start: a
// daemon without any listener ends within two seconds.
const openTimeout = time.Second
