package front

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/test/doortest"
)

// unfinished sends the head of a request with a large body, and more of the body than a pooled
// buffer holds.
func (h *house) unfinished(who string) net.Conn {
	h.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { c.Close() })
	_, err = fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: x\r\nWho: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", who, 2*keepBuffer, strings.Repeat(" ", keepBuffer+1))
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

// sent sends a whole body of the given size, and returns the status of its answer.
func (h *house) sent(who string, size int) int {
	r, err := http.NewRequest(http.MethodPost, h.url+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","method":"notifications/x"}`+strings.Repeat(" ", size)))
	if err != nil {
		h.t.Error(err)
		return 0
	}
	r.Header.Set("Who", who)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
	resp, err := doortest.Client().Do(r)
	if err != nil {
		h.t.Error(err)
		return 0
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// reading returns how many large bodies of a principal are being read.
func (d *Door) reading(who *principal.Principal) int {
	d.large.mu.Lock()
	defer d.large.mu.Unlock()
	if p := d.large.places[who.Name()]; p != nil {
		return len(p.taken)
	}
	return 0
}

// bodies returns how many large bodies are read or wait, and for how many principals something is
// kept.
func (d *Door) bodies() (n, kept int) {
	d.large.mu.Lock()
	defer d.large.mu.Unlock()
	for _, p := range d.large.places {
		n += p.users
	}
	return n, len(d.large.places)
}

// A client that hangs up gives its turn for a large body back, also while it waits; and nothing is
// kept of a principal whose bodies have ended.
func TestAClientThatHangsUpDoesNotWait(t *testing.T) {
	t.Parallel()
	var left atomic.Bool
	h := open(t, Options{BodyBytes: 8 * keepBuffer, HungUp: func(context.Context) func() bool { return left.Load }})
	var waiting, begun []net.Conn
	for range largeAtOnce {
		begun = append(begun, h.unfinished("alice"))
	}
	h.eventually("the places are taken", func() bool { return h.door.reading(alice) == largeAtOnce })
	for range 8 {
		waiting = append(waiting, h.unfinished("alice"))
	}
	holds := func(n, kept int) func() bool {
		return func() bool { gotN, gotKept := h.door.bodies(); return gotN == n && gotKept == kept }
	}
	h.eventually("others wait", holds(len(begun)+len(waiting), 1))
	for _, c := range waiting {
		c.Close()
	}
	left.Store(true)
	h.eventually("they left", holds(len(begun), 1))
	for _, c := range begun {
		c.Close()
	}
	h.eventually("nothing is kept", holds(0, 0))
}

// However many large bodies a principal begins and does not finish, few are read at once. They
// delay its own further large bodies until one of them ends, its small ones and those of others
// not at all.
func TestUnfinishedLargeBodiesAreBounded(t *testing.T) {
	t.Parallel()
	h := open(t, Options{BodyBytes: 8 * keepBuffer})
	var begun []net.Conn
	for range largeAtOnce + 8 {
		begun = append(begun, h.unfinished("alice"))
	}
	h.eventually("the places are taken", func() bool { return h.door.reading(alice) == largeAtOnce })
	if got := h.sent("bob", 4*keepBuffer); got != http.StatusAccepted {
		t.Errorf("a large body of another: %d", got)
	}
	if got := h.sent("alice", keepBuffer/2); got != http.StatusAccepted {
		t.Errorf("a small body: %d", got)
	}
	if _, err := h.door.large.enter(alice, 0, nil); !errors.Is(err, errTooMany) {
		t.Errorf("a place beyond the limit: %v", err)
	}
	answered := make(chan int, 1)
	go func() { answered <- h.sent("alice", 4*keepBuffer) }()
	for _, c := range begun {
		c.Close()
	}
	if got := <-answered; got != http.StatusAccepted {
		t.Errorf("a large body after the others ended: %d", got)
	}
	h.eventually("no place is taken", func() bool { return h.door.reading(alice) == 0 })
}

// A body of any size up to the limit is read as before, with and without an announced length.
func TestBodiesAroundThePooledSizeAreRead(t *testing.T) {
	t.Parallel()
	h := open(t, Options{BodyBytes: 2 * keepBuffer})
	for size, want := range map[int]int{keepBuffer - 44: 202, keepBuffer - 43: 202, keepBuffer: 202, keepBuffer + 1: 202, 2*keepBuffer - 44: 202, 2*keepBuffer - 43: 413} {
		if got := h.sent("alice", size); got != want {
			t.Errorf("%d bytes: %d, want %d", size+44, got, want)
		}
	}
}
