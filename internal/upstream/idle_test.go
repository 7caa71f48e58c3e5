package upstream

import (
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An idle connection keeps no header and no head of its requests, and makes the same ones again.
func TestAnIdleConnectionKeepsNoHeader(t *testing.T) {
	t.Parallel()
	f := newFakeWeb(t, nil)
	c := dialLegacy(t, f.server(func(d *Definition, _ *Deps) { d.Headers = http.Header{"X-Key": {"configured"}} }), nil).(*httpConn)
	mustCall(t, c, tool("echo"), nil)
	eventually(t, "the collector has taken what the last request was made with", func() bool {
		runtime.GC()
		who := c.who.Load()
		who.mu.Lock()
		defer who.mu.Unlock()
		return who.made.Value() == nil
	})
	mustCall(t, c, tool("echo"), nil)
	calls := f.methods("tools/call")
	if len(calls) != 2 {
		t.Fatalf("%d calls, want 2", len(calls))
	}
	for _, s := range calls {
		s.header.Del("Content-Length") // the ids of the two may differ in length
		if s.header.Get("Mcp-Session-Id") != "session-1" || s.header.Get("X-Key") != "configured" || s.header.Get("Mcp-Protocol-Version") == "" {
			t.Errorf("a call with the header %v", s.header)
		}
	}
	if diff := cmp.Diff(calls[0].header, calls[1].header); diff != "" {
		t.Errorf("the header has changed:\n%s", diff)
	}
}

// The calls in flight of a connection are those that have begun and have not been removed, in any
// order, and without one there is no more room than for a few.
func TestCallsInFlight(t *testing.T) {
	t.Parallel()
	for range 50 {
		var calls inFlight
		var all []*httpCall
		for i := range 20 {
			x := &httpCall{id: int64(i)}
			calls.add(x)
			all = append(all, x)
		}
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for len(all) > 0 {
			calls.remove(all[0])
			all = all[1:]
			for _, x := range all {
				if !slices.Contains(calls, x) {
					t.Fatalf("call %d is missing", x.id)
				}
			}
			if len(calls) != len(all) {
				t.Fatalf("%d calls, want %d", len(calls), len(all))
			}
		}
		if cap(calls) > fewCalls {
			t.Errorf("room for %d calls", cap(calls))
		}
	}
}
