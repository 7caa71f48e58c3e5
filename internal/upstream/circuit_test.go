package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// refusedDial is the error of a dial to a port without a listener.
var refusedDial = &net.OpError{Op: "dial", Err: errors.New("connection refused")}

// The circuit opens after five failures in a row to connect, refuses at once, lets one call through when its time is
// over, stays open for longer when that fails too, and closes when anything connects.
func TestCircuit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var changes []bool
		c := &circuit{change: func(open bool, _ int, _ time.Duration) { changes = append(changes, open) }}
		c.clean.Store(true)
		ctx := t.Context()
		attempt := func(err error) (wait time.Duration) {
			probe, wait := c.enter()
			if wait == 0 {
				c.done(probe, ctx, err)
			}
			return wait
		}
		for range circuitFailures - 1 {
			attempt(refusedDial)
		}
		attempt(nil) // a success begins the count anew
		for range circuitFailures {
			if wait := attempt(refusedDial); wait != 0 {
				t.Fatalf("refused for %s too early", wait)
			}
		}
		if wait := attempt(nil); wait != firstOpen {
			t.Errorf("open for %s", wait)
		}
		for _, next := range []time.Duration{2 * firstOpen, 4 * firstOpen} {
			_, wait, _ := c.open(time.Now())
			time.Sleep(wait)
			probe, _ := c.enter()
			if _, wait := c.enter(); !probe || wait == 0 {
				t.Error("not exactly one call is let through")
			}
			c.done(probe, ctx, refusedDial)
			if wait := attempt(nil); wait != next {
				t.Errorf("open for %s, want %s", wait, next)
			}
		}
		// A caller that leaves shows nothing, and the next may try.
		time.Sleep(4 * firstOpen)
		left, cancel := context.WithCancel(ctx)
		cancel()
		probe, _ := c.enter()
		c.done(probe, left, refusedDial)
		if wait := attempt(errors.New("reset after it connected")); wait != 0 {
			t.Errorf("refused for %s after a caller left", wait)
		}
		if open := attempt(nil); open != 0 {
			t.Error("it did not close")
		}
		if len(changes) != 2 || !changes[0] || changes[1] {
			t.Errorf("told of %v", changes)
		}
	})
}

// A client cannot open the circuit: not by calls that it cancels, that are refused, that time out, that fail the
// server or that answer too much.
func TestAClientCannotOpenTheCircuit(t *testing.T) {
	t.Parallel()
	f := newFakeWeb(t, func(f *fakeWeb) {
		f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
			if m.Method != "tools/call" {
				return false
			}
			switch string(m.Params) {
			case `{"name":"hang","arguments":{}}`:
				<-r.Context().Done()
			case `{"name":"500","arguments":{}}`:
				w.WriteHeader(http.StatusInternalServerError)
			case `{"name":"cut","arguments":{}}`:
				panic(http.ErrAbortHandler)
			case `{"name":"long","arguments":{}}`:
				writeJSON(w, http.StatusOK, string(make([]byte, 2<<20)))
			default:
				return false
			}
			return true
		}
	})
	s := f.server(func(d *Definition, _ *Deps) { d.Timeout, d.MaxMessage = 100*time.Millisecond, 1<<20 })
	c := dialInTime(t, s)
	for range 2 * circuitFailures {
		for _, name := range []string{"hang", "500", "cut", "long"} {
			_, _ = c.Call(testContext(t), tool(name), nil)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, _ = c.Call(ctx, tool("hang"), nil)
		cancel()
	}
	if open, _ := s.Circuit(); open {
		t.Error("it is open")
	}
	eventually(t, "a call within its time", func() bool { _, err := c.Call(testContext(t), tool("fine"), nil); return err == nil })
}

// Calls to a server that cannot be reached are refused at once after the first ones, with one notice. The first call
// after the server came back connects, with another notice.
func TestUnreachableServer(t *testing.T) {
	t.Parallel()
	addr := fmt.Sprintf("127.0.0.1:%d", doortest.FreePort(t))
	var notices atomic.Int32
	s := webServer(t, "http://"+addr+"/mcp", func(_ *Definition, d *Deps) {
		d.Log, d.Notice = discard, func(string, bool) { notices.Add(1) }
	})
	for range circuitFailures {
		if _, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil); !errors.Is(err, ErrNotSent) {
			t.Fatalf("%v", err)
		}
	}
	for range 100 {
		_, _, err := s.DialModern(testContext(t), []byte(modernMeta), nil)
		if !errors.Is(err, ErrOpen) || wrapped(err) != 1 || RetryAfter(err) <= 0 {
			t.Fatalf("%v", err)
		}
	}
	if open, _ := s.Circuit(); !open || notices.Load() != 1 {
		t.Errorf("open: %v after %d notices", open, notices.Load())
	}
	back, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeWeb{t: t, session: "session-1"}
	web := &http.Server{Handler: f}
	go func() { _ = web.Serve(back) }()
	t.Cleanup(func() { web.Close() })
	s.circuit.mu.Lock()
	s.circuit.until = time.Now()
	s.circuit.mu.Unlock()
	dialLegacy(t, s, nil)
	if open, _ := s.Circuit(); open || notices.Load() != 2 {
		t.Errorf("open: %v after %d notices", open, notices.Load())
	}
}

// A handshake that brings the server down delays only starts with the same handshake. The table of these is bounded.
func TestHandshakeThatBringsTheServerDown(t *testing.T) {
	t.Parallel()
	s := fake(t, "plain", func(d *Definition, deps *Deps) {
		d.Args, deps.Log = []string{"fake-server", "crash-on-evil"}, discard
	})
	evil := []byte(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"evil","version":"1"}}`)
	for range 3 {
		eventually(t, "the next attempt", func() bool {
			_, _, err := s.DialLegacy(testContext(t), evil, nil)
			if err == nil {
				t.Fatal("it survived")
			}
			return !errors.Is(err, ErrOpen)
		})
		if s.Pause(evil) == 0 || s.Pause([]byte(initParams)) != 0 || s.Pause(nil) != 0 {
			t.Errorf("they wait for %s, others for %s and %s", s.Pause(evil), s.Pause([]byte(initParams)), s.Pause(nil))
		}
		c := dialLegacy(t, s, nil)
		mustCall(t, c, tool("echo"), nil)
		c.Close()
	}
	for i := range 3 * maxHellos { // other handshakes do not grow the table without end
		s.backoff.ended(uint64(i)<<1|1, time.Now(), time.Now())
	}
	if len(s.backoff.by) > maxHellos {
		t.Errorf("%d are remembered", len(s.backoff.by))
	}
}
