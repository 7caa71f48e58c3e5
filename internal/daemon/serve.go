package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/internal/trust/audit"
)

// Time limits of every HTTP server. There is no WriteTimeout, which would cut event streams;
// instead the front sets a deadline for each write. There is no ReadTimeout, which would cancel
// long calls; bodyTime bounds the bodies.
const (
	headerTime  = 10 * time.Second
	idleTime    = 3 * time.Minute
	headerBytes = 32 << 10
)

// listeners holds the open listeners and their HTTP servers.
type listeners struct {
	d *Daemon

	mu      sync.Mutex
	open    []*listen.Listener
	refused []Refused
	https   []*http.Server
	ready   bool

	stopping atomic.Bool // stop was called
}

// openArrivals starts to watch idle connections. Without it each of them has a goroutine.
func (ls *listeners) openArrivals() error {
	a, err := peer.NewArrivals()
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		ls.d.log.Warn("idle connections take more memory", "err", err)
		return nil
	}
	ls.d.arrivals = a
	ls.d.onClose(func() { _ = a.Close() }) // closing a descriptor of this kind writes nothing
	return nil
}

// connections returns the number of open connections of all listeners.
func (ls *listeners) connections() (n int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.open {
		n += l.Open()
	}
	return n
}

// Run opens the listeners, reports them, and serves until ctx ends. The error is
// ErrNoListener if no listener was opened.
func (d *Daemon) Run(ctx context.Context) error {
	for _, spec := range Specs(d.o.Config) {
		d.listeners.add(ctx, spec)
	}
	if len(d.listeners.open) == 0 {
		return ErrNoListener
	}
	pace := startPacer(func() uint64 { return d.audit.State().Seq }, d.listeners.connections)
	defer pace.close()
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	go d.places.watch(watching, d.log, d.audit)
	defer d.retention.start(watching)()
	failed := make(chan error, len(d.listeners.open))
	for _, l := range d.listeners.open {
		go d.listeners.serve(l, failed)
	}
	d.listeners.mu.Lock()
	d.listeners.ready = true
	d.listeners.mu.Unlock()
	fmt.Fprintln(d.o.Say, "ready")
	notify("READY=1")
	d.warmth.start(watching, d.relay, d.o.Config)
	defer notify("STOPPING=1")
	select {
	case <-ctx.Done():
	case err := <-failed:
		d.listeners.stop()
		return err
	}
	d.listeners.stop()
	return nil
}

// Specs returns the configured listeners, the Unix socket first.
func Specs(c *config.Config) []listen.Spec {
	var out []listen.Spec
	if c.Listen.Unix != "off" {
		out = append(out, listen.Spec{Network: "unix", Addr: c.Listen.Unix})
	}
	for _, h := range c.Listen.HTTP {
		s := listen.Spec{Network: "tcp", Addr: h.Addr, Auth: h.Auth, RequireTLS: h.RequireTLS, Hosts: h.Hosts, Origins: h.Origins, TrustedProxies: h.TrustedProxies()}
		if h.TLS != nil {
			s.CertFile, s.KeyFile = h.TLS.Cert, h.TLS.Key
		}
		out = append(out, s)
	}
	return out
}

// add opens one listener, or records why it is refused.
func (ls *listeners) add(ctx context.Context, s listen.Spec) {
	where := s.Addr
	if s.Network == "unix" {
		where = "unix:" + s.Addr
	}
	l, err := listen.Open(ctx, s, Credential(ls.d.callers.auth, ls.d.o.Config), listen.Options{
		RuntimeDir: ls.d.o.RuntimeDir,
		MaxConns:   4*ls.d.o.Config.Limits.Sessions + 1024,
		OwnChild:   ownChild,
		Spawned:    ls.d.agents.tree,
		Holders:    ls.d.holders,
		Arrivals:   ls.d.arrivals,
		OnRefused:  func(r listen.Refusal) { ls.d.callers.events.connection(where, r) },
		OnNotice:   func(text string) { ls.d.log.Info(text, "listener", s.Addr) },
	})
	var refused *listen.RefusedError
	if errors.As(err, &refused) {
		ls.refuse(s, refused)
		return
	}
	if err != nil {
		ls.refuse(s, &listen.RefusedError{Addr: s.Addr, Reason: err.Error()})
		return
	}
	ls.mu.Lock()
	ls.open = append(ls.open, l)
	ls.mu.Unlock()
	fmt.Fprintln(ls.d.o.Say, "listening", l.URL())
	if w := listen.Warning(l, Credential(ls.d.callers.auth, ls.d.o.Config)); w != "" {
		ls.d.log.Warn(w, "listener", l.URL())
	}
}

func (ls *listeners) refuse(s listen.Spec, e *listen.RefusedError) {
	fmt.Fprintf(ls.d.o.Say, "refused %s: %s\n", e.Addr, e.Reason)
	ls.d.audit.Later(&audit.Record{Kind: audit.Event, Source: "listen", Action: "listen.refused", Resource: e.Addr, Decision: audit.Deny})
	ls.mu.Lock()
	ls.refused = append(ls.refused, Refused{Network: s.Network, Addr: e.Addr, Reason: e.Reason})
	ls.mu.Unlock()
}

func (ls *listeners) serve(l *listen.Listener, failed chan<- error) {
	srv := &http.Server{
		Handler:           listen.Alert(l, timely(ls.d.proof.proving(l, ls.d.door), bodyTime)),
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    headerBytes,
		ConnContext:       ls.d.callers.connContext(l),
		ConnState:         l.ConnState,
		ErrorLog:          slog.NewLogLogger(ls.d.log.Handler(), slog.LevelDebug),
		// Otherwise net/http answers "OPTIONS *" itself, before Host, Origin and token are checked.
		DisableGeneralOptionsHandler: true,
	}
	if l.Rests() {
		srv.IdleTimeout = listen.RestAfter
	}
	ls.mu.Lock()
	ls.https = append(ls.https, srv)
	ls.mu.Unlock()
	if err := srv.Serve(l.Net()); err != nil && !errors.Is(err, http.ErrServerClosed) {
		failed <- fmt.Errorf("serving %s: %w", l.URL(), err)
	}
}

// stop closes the listeners and ends sessions and servers before the connections, so that
// streams get their last messages.
func (ls *listeners) stop() {
	ls.mu.Lock()
	servers, listeners := ls.https, ls.open
	ls.mu.Unlock()
	ls.stopping.Store(true)
	for _, l := range listeners {
		l.Close()
	}
	if m := ls.d.messaging.Load(); m != nil {
		m.server.Close() // callers that wait for mail get an answer
	}
	ls.d.instructing.server.Close()
	ls.d.console.Close()
	ls.d.relay.Close()
	ls.d.door.Close()
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	for _, s := range servers {
		if s.Shutdown(ctx) != nil {
			s.Close()
		}
	}
	ls.d.door.Drain(ctx) // a handler may have left its request to another goroutine until Shutdown
}

// drainTime is how long running answers may take when the daemon stops.
const drainTime = time.Second
