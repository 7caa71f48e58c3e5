package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/principal"
)

// river is a book in which each look after the first finds a change, until it fails.
type river struct {
	book
	looks atomic.Int64
	quiet bool  // nothing changes
	until int64 // looks
	fail  error
}

func (v *river) Tail(ctx context.Context, by agent.Caller, peer string, after int64, waitMS int) (*agent.Tailed, error) {
	n := v.looks.Add(1)
	switch {
	case n > v.until && v.fail != nil:
		return nil, v.fail
	case n == 1 && (after != -1 || waitMS != 0):
		return nil, fmt.Errorf("the first look is behind %d for %d ms", after, waitMS)
	case n > 1 && after != n-1:
		return nil, fmt.Errorf("look %d is behind %d", n, after)
	case n == 1 || v.quiet:
		return &agent.Tailed{After: n}, nil
	}
	return &agent.Tailed{After: n, Changes: []mail.Change{{ID: n, MessageID: peer, After: mail.Queued}}}, nil
}

// open begins a tail and gives the lines of its stream.
func open(t *testing.T, v *river, holds func(*principal.Principal) bool) (*http.Response, *bufio.Scanner, <-chan struct{}) {
	t.Helper()
	o := (&office{book: &v.book, complete: true}).options()
	o.Messaging.Agents, o.Messaging.Holds = v, holds
	over := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(over)
		Paths(o)["/admin/v1/agent/tail"](w, r, principal.New("uid:1"))
	}))
	t.Cleanup(s.Close)
	resp, err := s.Client().Get(s.URL + "/admin/v1/agent/tail?peer=planner")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp, bufio.NewScanner(resp.Body), over
}

func data(lines *bufio.Scanner) string {
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			return text
		}
	}
	return ""
}

// A tail shows each change once, in order, from its beginning on, and ends when its
// caller closes the connection.
func TestATailShowsEachChangeOnceAndEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	resp, lines, over := open(t, &river{}, nil)
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Fatalf("%s %s", resp.Status, kind)
	}
	for n := 2; n < 20; n++ {
		if got, want := data(lines), fmt.Sprintf(`{"id":%d,"at":0,"message_id":"planner",`, n); !strings.HasPrefix(got, want) {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	resp.Body.Close()
	ends(t, over)
}

func ends(t *testing.T, over <-chan struct{}) {
	t.Helper()
	select {
	case <-over:
	case <-time.After(20 * time.Second):
		t.Fatal("it goes on")
	}
}

// A tail whose looks return at once without a change pauses between them. In a
// daemon that is closing every look returns at once.
func TestATailWithoutChangesPauses(t *testing.T) {
	t.Parallel()
	began := time.Now()
	v := &river{quiet: true, until: 6, fail: errors.New("it closes")}
	_, _, over := open(t, v, nil)
	ends(t, over)
	if n, took := v.looks.Load(), time.Since(began); n != 7 || took < 5*tailPause {
		t.Errorf("it looked %d times in %s", n, took)
	}
}

func TestATailEndsWithTheRightToIt(t *testing.T) {
	t.Parallel()
	var lost atomic.Bool
	for what, tc := range map[string]struct {
		river *river
		holds func(*principal.Principal) bool
		want  string
	}{
		"an agent above it, now": {&river{until: 3, fail: agent.ErrAgentShell}, nil, `"code":"AGENT_SHELL","why":"agent","status":403`},
		"the store has gone":     {&river{until: 3, fail: &mail.Error{Code: mail.StoreUnavailable}}, nil, `"code":"STORE_UNAVAILABLE","status":503`},
		"an unknown error":       {&river{until: 3, fail: errors.New("secret")}, nil, `{"error":"Internal Server Error","status":500}`},
		"a token that is revoked": {&river{}, func(*principal.Principal) bool { return !lost.Swap(true) },
			`"code":"NOT_ALLOWED","status":403`},
	} {
		_, lines, over := open(t, tc.river, tc.holds)
		last := ""
		for text := data(lines); text != ""; text = data(lines) {
			last = text
		}
		if !strings.Contains(last, tc.want) {
			t.Errorf("%s: it ended with %s, want %s", what, last, tc.want)
		}
		ends(t, over)
	}
}

func TestATailThatMayNotBeginHasAStatus(t *testing.T) {
	t.Parallel()
	resp, _, over := open(t, &river{fail: agent.ErrAgentShell}, nil)
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("%s", resp.Status)
	}
	ends(t, over)
}
