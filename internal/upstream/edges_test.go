package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/upstream/process"
	"github.com/doorward/doorward/test/overload"
)

// The death of a child is noticed at once although another process holds its
// standard output open, so that no end of file comes.
func TestStdioDeathIsNoticedWithoutEndOfFile(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("needs /proc to take hold of another process's pipe")
	}
	s := fake(t, "plain")
	hold := func() (Conn, *os.File) {
		c, result, err := s.DialLegacy(testContext(t), []byte(initParams), nil)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(fmt.Sprintf("/proc/%s/fd/1", rawjson.Get(result, "pid")), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		return c, f
	}
	c, f := hold()
	defer f.Close()
	start := time.Now()
	if _, err := c.Call(testContext(t), tool("crash"), nil); !errors.Is(err, ErrLost) {
		t.Errorf("got %v", err)
	}
	if d := time.Since(start); d > 5*time.Second+overload.Late() {
		t.Errorf("took %s", d)
	}
	waitDone(t, c)
}

func TestStdioCapOnChildren(t *testing.T) {
	t.Parallel()
	runner, err := process.NewRunner(process.Options{Max: 1, Stdin: 100 * time.Millisecond, Term: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s := fake(t, "plain", func(_ *Definition, d *Deps) { d.Runner = runner })
	c := dialLegacy(t, s, nil)
	if _, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil); !errors.Is(err, ErrBusy) || wrapped(err) != 1 {
		t.Errorf("legacy: %v", err)
	}
	if _, _, err := s.DialModern(testContext(t), []byte(modernMeta), nil); !errors.Is(err, ErrBusy) {
		t.Errorf("modern: %v", err)
	}
	c.Close()
	eventually(t, "there is room again", func() bool {
		c, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	if err := runner.Close(testContext(t)); err != nil {
		t.Error(err)
	}
}

func TestStdioStderrGoesToTheLogWhenAsked(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{true, false} {
		var log safeBuffer
		s := fake(t, "plain", func(def *Definition, d *Deps) {
			def.KeepStderr = keep
			d.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		c := dialLegacy(t, s, nil)
		mustCall(t, c, tool("complain"), nil)
		c.Close()
		<-c.(*stdioConn).proc.Done()
		if got := strings.Contains(log.String(), `line="oh no"`); got != keep {
			t.Errorf("keep %v: %s", keep, log.String())
		}
	}
}

// A connection that breaks is logged once, with the reason and nothing that the
// server said.
func TestBrokenConnectionsAreLogged(t *testing.T) {
	t.Parallel()
	var log safeBuffer
	s := fake(t, "plain", func(_ *Definition, d *Deps) { d.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	c := dialLegacy(t, s, nil)
	c.Call(testContext(t), tool("raw", `"line":`+quote(strings.Repeat(`{"jsonrpc":"topsecret","method":1}`+"\n", maxBad+1))), nil)
	waitDone(t, c)
	eventually(t, "the log line", func() bool { return strings.Contains(log.String(), "broke the protocol") })
	if strings.Contains(log.String(), "topsecret") || strings.Count(log.String(), "server connection broke") != 1 {
		t.Errorf("log: %s", log.String())
	}
}

// secureWeb is a TLS server, which speaks HTTP/2, and an upstream that trusts
// it.
func secureWeb(t *testing.T, h http.Handler) *Server {
	web := httptest.NewUnstartedServer(h)
	web.EnableHTTP2 = true
	web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	web.StartTLS()
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	s := webServer(t, web.URL+"/mcp")
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	s.transport.Secure.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return s
}

func TestHTTP2(t *testing.T) {
	t.Parallel()
	var protocols atomic.Value
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cancelled := make(chan struct{})
	logic := &fakeWeb{t: t, session: "s2", stream: func(w http.ResponseWriter, r *http.Request) {
		events(w)("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n")
		<-r.Context().Done()
	}, call: func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
		protocols.Store(r.Proto)
		switch {
		case m.Method != "tools/call":
			return false
		case strings.Contains(string(m.Params), "hang"):
			events(w)
			cancel()
			<-r.Context().Done()
			close(cancelled)
		case strings.Contains(string(m.Params), "events"):
			events(w)("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"text\":\"streamed\"}}\n\n", m.ID)
		default:
			return false
		}
		return true
	}}
	var changes recorder
	c := dialLegacy(t, secureWeb(t, logic), changes.on)
	c.Listen()
	eventually(t, "the change", func() bool { return len(changes.all()) == 1 })
	for range 20 {
		mustCall(t, c, tool("echo"), nil)
		if got := text(t, mustCall(t, c, tool("events"), nil)); got != "streamed" {
			t.Errorf("got %q", got)
		}
	}
	if protocols.Load() != "HTTP/2.0" {
		t.Errorf("spoke %v", protocols.Load())
	}
	if _, err := c.Call(ctx, tool("hang"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-cancelled
	c.Close()
	waitDone(t, c)
}

func TestUntrustedCertificateIsNotSent(t *testing.T) {
	t.Parallel()
	s := secureWeb(t, http.NotFoundHandler())
	s.transport.Secure.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if _, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil); !errors.Is(err, ErrNotSent) || wrapped(err) != 1 {
		t.Errorf("got %v", err)
	}
}

// A receiver that panics ends its own goroutine and leaves no call in the
// table.
func TestReceiverThatPanicsLeavesNoCallBehind(t *testing.T) {
	t.Parallel()
	c := dialLegacy(t, fake(t, "plain"), nil)
	func() {
		defer func() { recover() }()
		r := tool("progress")
		r.ProgressToken = []byte(`1`)
		c.Call(testContext(t), r, func(Event) { panic("receiver") })
		t.Error("no panic")
	}()
	eventually(t, "the call is gone", func() bool {
		p := &c.(*stdioConn).pending
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.calls) == 0
	})
	mustCall(t, c, tool("echo"), nil)
}
