package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// elicitation returns the n-th question of a server.
func elicitation(n int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":"q-%d","method":"elicitation/create","params":{}}`, n)
}

// asking returns a call during which the fake child asks n questions, and that it does not
// answer.
func asking(n int) *Request {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = strings.ReplaceAll(elicitation(i), `"`, `\"`)
	}
	return tool("raw", `"line":"`+strings.Join(lines, `\n`)+`"`)
}

// open returns the number of questions for which the clocks are stopped.
func (h *hold) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.open)
}

// A server that asks more than can be delivered or refused does not switch off the limits of its
// calls.
func TestQuestionsWithoutAnAnswerDoNotStopTheClocks(t *testing.T) {
	t.Parallel()
	const many = 3 * maxWaiting
	limited := func(d *Definition, _ *Deps) { d.Timeout = time.Second }
	web := newFakeWeb(t, func(f *fakeWeb) {
		f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
			if m.Method != "tools/call" && m.Method != "" {
				return false
			}
			if m.Method != "" {
				write := events(w)
				for n := range many {
					write("data: %s\n\n", elicitation(n))
				}
			}
			<-r.Context().Done() // an answer is not accepted either
			return true
		}
	})
	for kind, start := range map[string]func() (*Server, *Request){
		"stdio": func() (*Server, *Request) { return fake(t, "plain", limited), asking(many) },
		"http":  func() (*Server, *Request) { return web.server(limited), tool("ask") },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, r := start()
			c := dialLegacy(t, s, nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := c.Call(ctx, r, nil); !errors.Is(err, ErrTimeout) {
				t.Errorf("the call ended with %v", err)
			}
		})
	}
}

// The questions that wait for a call when its caller leaves are refused.
func TestQuestionsOfAnAbandonedCallAreRefused(t *testing.T) {
	t.Parallel()
	s := fake(t, "plain")
	for range 20 {
		c := dialLegacy(t, s, nil)
		h := &c.(*stdioConn).hold
		ctx, cancel := context.WithCancel(testContext(t))
		first, leave := make(chan struct{}), make(chan struct{})
		var once sync.Once
		done := make(chan error)
		go func() {
			_, err := c.Call(ctx, asking(200), func(ev Event) {
				once.Do(func() { close(first) })
				<-leave
				_ = c.Answer(testContext(t), ev.ID, Reply{Result: []byte(`{}`)}) // the connection is fine
			})
			done <- err
		}()
		<-first
		eventually(t, "all are asked", func() bool { return h.count() == 200 })
		cancel()
		close(leave)
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatalf("the call ended with %v", err)
		}
		eventually(t, "none is open", func() bool { return h.count() == 0 })
		c.Close()
	}
}

// The number of questions that are noted is bounded, and the clocks run again when those are
// answered.
func TestHoldIsBounded(t *testing.T) {
	t.Parallel()
	var h hold
	for n := range 2 * maxHeld {
		h.asked(fmt.Sprint(n))
	}
	if n := h.count(); n != maxHeld {
		t.Errorf("%d are noted", n)
	}
	for n := range 2 * maxHeld {
		h.answered(fmt.Sprint(n))
	}
	if _, now := h.held(); now {
		t.Error("the clocks are stopped")
	}
}
