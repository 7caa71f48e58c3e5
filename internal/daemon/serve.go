package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/trust/audit"
)

// Time limits of every HTTP server. There is no WriteTimeout: it would cut
// event streams, so each write has a deadline of its own in front.
const (
	headerTime  = 10 * time.Second
	idleTime    = 3 * time.Minute
	headerBytes = 32 << 10
)

// Run opens the listeners, says so, and serves until ctx ends. ErrNoListener
// when the bind table left none.
func (d *Daemon) Run(ctx context.Context) error {
	for _, spec := range Specs(d.o.Config) {
		d.open(ctx, spec)
	}
	if len(d.listeners) == 0 {
		return ErrNoListener
	}
	pace := startPacer(func() uint64 { return d.audit.State().Seq })
	defer pace.close()
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	go d.watchPlaces(watching)
	failed := make(chan error, len(d.listeners))
	for _, l := range d.listeners {
		go d.serve(l, failed)
	}
	d.mu.Lock()
	d.ready = true
	d.mu.Unlock()
	fmt.Fprintln(d.o.Say, "ready")
	notify("READY=1")
	defer notify("STOPPING=1")
	select {
	case <-ctx.Done():
	case err := <-failed:
		d.stop()
		return err
	}
	d.stop()
	return nil
}

// Specs are the configured listeners, the Unix socket first.
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

// open opens one listener, or records why it stays shut.
func (d *Daemon) open(ctx context.Context, s listen.Spec) {
	where := s.Addr
	if s.Network == "unix" {
		where = "unix:" + s.Addr
	}
	l, err := listen.Open(ctx, s, Credential(d.auth, d.o.Config), listen.Options{
		RuntimeDir: d.o.RuntimeDir,
		MaxConns:   4*d.o.Config.Limits.Sessions + 1024,
		OwnChild:   ownChild,
		Spawned:    d.agents.tree,
		Holders:    d.holders,
		OnRefused:  func(r listen.Refusal) { d.events.connection(where, r) },
		OnNotice:   func(text string) { d.log.Info(text, "listener", s.Addr) },
	})
	var refused *listen.RefusedError
	if errors.As(err, &refused) {
		d.refuse(s, refused)
		return
	}
	if err != nil {
		d.refuse(s, &listen.RefusedError{Addr: s.Addr, Reason: err.Error()})
		return
	}
	d.mu.Lock()
	d.listeners = append(d.listeners, l)
	d.mu.Unlock()
	fmt.Fprintln(d.o.Say, "listening", l.URL())
	if l.Warning != "" {
		d.log.Warn(l.Warning, "listener", l.URL())
	}
}

func (d *Daemon) refuse(s listen.Spec, e *listen.RefusedError) {
	fmt.Fprintf(d.o.Say, "refused %s: %s\n", e.Addr, e.Reason)
	d.audit.Later(&audit.Record{Kind: audit.Event, Source: "listen", Action: "listen.refused", Resource: e.Addr, Decision: audit.Deny})
	d.mu.Lock()
	d.refused = append(d.refused, Refused{Network: s.Network, Addr: e.Addr, Reason: e.Reason})
	d.mu.Unlock()
}

func (d *Daemon) serve(l *listen.Listener, failed chan<- error) {
	srv := &http.Server{
		Handler:           d.proving(l, d.door),
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    headerBytes,
		ConnContext:       d.connContext(l),
		ErrorLog:          slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
	}
	d.mu.Lock()
	d.https = append(d.https, srv)
	d.mu.Unlock()
	if err := srv.Serve(l.Net()); err != nil && !errors.Is(err, http.ErrServerClosed) {
		failed <- fmt.Errorf("serving %s: %w", l.URL(), err)
	}
}

// stop closes the doors and ends what is inside: sessions and their servers
// first, so that streams end with a last word, then the connections.
func (d *Daemon) stop() {
	d.mu.Lock()
	servers, listeners := d.https, d.listeners
	d.mu.Unlock()
	for _, l := range listeners {
		l.Close()
	}
	if m := d.messaging.Load(); m != nil {
		m.server.Close() // who waits for mail is told
	}
	d.instructing.server.Close()
	d.relay.Close()
	d.door.Close()
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	for _, s := range servers {
		if s.Shutdown(ctx) != nil {
			s.Close()
		}
	}
}

// drainTime is how long answers under way may take once the daemon stops.
const drainTime = time.Second
