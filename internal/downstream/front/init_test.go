package front

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// earlyMessages are messages that may come before initialize has succeeded, with the status of
// their POST and a part of the answer on the stream; no answer: none is due.
var earlyMessages = []struct {
	body, answer string
	status       int
}{
	{`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `-32600`, http.StatusAccepted},
	{`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x"}}`, `send initialize`, http.StatusAccepted},
	{`{"jsonrpc":"2.0","id":3,"method":"x/y","params":{}}`, `-32600`, http.StatusAccepted},
	{`{"jsonrpc":"2.0","id":4,"method":"ping","params":{}}`, `{"echo":{}}`, http.StatusAccepted},
	{`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`, ``, http.StatusBadRequest},
	{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, ``, http.StatusAccepted},
	{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`, ``, http.StatusAccepted},
	{`{"jsonrpc":"2.0","id":5,"result":{}}`, ``, http.StatusAccepted},
}

// early sends those messages and reports which reached the Handler.
func early(t *testing.T, h *house, when string) {
	t.Helper()
	where, events := h.overSSE()
	begun := make(chan struct{})
	release := make(chan struct{})
	h.watch = func(x *Exchange) {
		if when == "during initialize" && x.Method == "initialize" {
			close(begun)
			<-release
		}
	}
	switch when {
	case "during initialize":
		h.do("POST", where, hello)
		<-begun
	case "after a failed initialize":
		h.refuseHello.Store(true)
		h.do("POST", where, hello)
		frame(t, events)
	}
	for _, m := range earlyMessages {
		a := h.do("POST", where, m.body)
		if a.status != m.status {
			t.Errorf("%s: %d %s", m.body, a.status, a.body)
		}
		if m.answer == "" {
			continue
		}
		if e := frame(t, events); !strings.Contains(string(e.Data), m.answer) {
			t.Errorf("%s: %s", m.body, e.Data)
		}
	}
	close(release)
	if when == "during initialize" {
		frame(t, events)
		h.do("POST", where, earlyMessages[2].body)
		if e := frame(t, events); !strings.Contains(string(e.Data), `{"echo":{}}`) {
			t.Errorf("after initialize: %s", e.Data)
		}
	}
}

// Over HTTP+SSE the Handler gets initialize and pings alone until initialize has succeeded.
func TestInitializeComesFirst(t *testing.T) {
	t.Parallel()
	for when, want := range map[string]string{
		"before initialize":         "ping",
		"during initialize":         "initialize ping x/y",
		"after a failed initialize": "initialize ping",
	} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			h := open(t, Options{})
			early(t, h, when)
			h.mu.Lock()
			defer h.mu.Unlock()
			if got := strings.Join(h.seen, " "); got != want {
				t.Errorf("the handler got %s, want %s", got, want)
			}
		})
	}
}

// The params of initialize may be read while they arrive, and are either absent or complete.
func TestInitializeParamsAreReadWhileTheyArrive(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	where, events := h.overSSE()
	h.serve = func(ctx context.Context, x *Exchange) Reply { // pings; initialize has an answer of its own
		for ctx.Err() == nil {
			if p := x.Session.Init.Params(); p != nil {
				return Reply{Result: append(append([]byte(`{"params":`), p...), '}')}
			}
			time.Sleep(time.Microsecond)
		}
		return Reply{None: true}
	}
	const pings = 5
	for i := range pings {
		h.do("POST", where, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i+1))
	}
	h.await("ping", pings)
	h.do("POST", where, hello)
	for range pings + 1 {
		if e := frame(t, events); !strings.Contains(string(e.Data), `"protocolVersion":"2025-11-25"`) {
			t.Errorf("%s", e.Data)
		}
	}
}
