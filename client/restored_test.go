package client

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/test/doortest"
)

// subscribers is a daemon that keeps the subscriptions of one legacy session.
type subscribers struct {
	halts   func(id string) bool // a subscription, or its end, that waits for the test
	arrived chan chan struct{}   // receives the channel that lets one go on when it is closed

	mu   sync.Mutex
	id   string // of the session
	held map[string]bool
}

func (d *subscribers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m, _ := wire.Parse(body, wire.FromClient)
	d.mu.Lock()
	now := d.id
	d.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case m.Method != "initialize" && r.Header.Get("Mcp-Session-Id") != now:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case m.Kind != wire.Request:
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "initialize":
		w.Header().Set("Mcp-Session-Id", now)
		w.Write(rawjson.AppendResult(nil, m.ID, []byte(`{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}}}`)))
	default:
		d.keep(r.Context(), &m)
		w.Write(rawjson.AppendResult(nil, m.ID, []byte(`{}`)))
	}
}

// keep begins or ends a subscription.
func (d *subscribers) keep(ctx context.Context, m *wire.Message) {
	uri, is := rawjson.GetString(m.Params, "uri")
	if !is {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.halts != nil && d.halts(string(m.ID)) {
		d.mu.Unlock()
		proceed := make(chan struct{})
		select {
		case d.arrived <- proceed:
			<-proceed
		case <-ctx.Done():
		}
		d.mu.Lock()
	}
	if m.Method == "resources/subscribe" {
		d.held[uri] = true
	} else {
		delete(d.held, uri)
	}
}

// keeps returns the resources with a subscription.
func (d *subscribers) keeps() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.held))
}

// forget makes the daemon know another session only, without subscriptions.
func (d *subscribers) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.id, d.held = id, make(map[string]bool)
}

// uriLine returns a request about a resource.
func uriLine(id, method, uri string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"uri":%q}}`, id, method, uri)
}

// Subscriptions that are repeated in a new session wait once for a daemon that is away, not each
// by itself. None is given up meanwhile, and a daemon that answers again has all of them.
func TestSubscriptionsDoNotEachWaitForADaemon(t *testing.T) {
	t.Parallel()
	const some = 20
	d := &subscribers{}
	d.forget("b")
	socket := socketPath(t)
	c := New(socket, "test")
	t.Cleanup(c.Close)
	s := &shim{c: c, ctx: t.Context(), o: ConnectOptions{Patience: 50 * time.Millisecond, Out: io.Discard, Log: slog.New(slog.DiscardHandler)}}
	s.legacy.id, s.legacy.uris = "b", make(map[string][]byte)
	var want []string
	for i := range some {
		uri := fmt.Sprintf("file:///%02d", i)
		want = append(want, uri)
		s.legacy.uris[`"`+uri+`"`] = []byte(uriLine(fmt.Sprint(i), "resources/subscribe", uri))
	}
	o := s.legacy.lacks(s)
	sent, post := make(map[string]bool), o.post
	o.post = func(s *shim, line []byte) (*response, error) {
		sent[string(line)] = true
		return post(s, line)
	}
	o.subscribe(func(uri string) { t.Errorf("%s is subscribed to while no daemon answers", uri) })
	if len(sent) != 1 || len(o.uris) != some {
		t.Errorf("%d subscriptions wait for the daemon, and %d are left; want 1 and %d", len(sent), len(o.uris), some)
	}
	serveAt(t, socket, d)
	told := make(map[string]bool)
	o.subscribe(func(uri string) { told[uri] = true })
	if got := d.keeps(); !slices.Equal(got, want) || len(told) != some || len(o.uris) != 0 {
		t.Errorf("the daemon keeps %q, %d are reported, and %d are left; want all %d", got, len(told), len(o.uris), some)
	}
}

// A new session has the subscriptions that its client wants, also those that the client ends or
// begins while the shim repeats them: each request of the shim waits at the daemon while the
// client makes some of its own.
func TestANewSessionHasWhatItsClientWants(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			newSession(t, rand.New(rand.NewPCG(seed, 1)))
		})
	}
}

func newSession(t *testing.T, random *rand.Rand) {
	d := &subscribers{arrived: make(chan chan struct{})}
	d.forget("a")
	c := connects(t, d)
	c.asks(lineInit, "1")
	c.says(lineReady)
	wants, uris := make(map[string]bool), make([]string, 6)
	for i := range uris {
		uris[i] = fmt.Sprintf("file:///%d", i)
		id := fmt.Sprintf(`"before %d"`, i)
		c.asks(uriLine(id, "resources/subscribe", uris[i]), id)
		wants[uris[i]] = true
	}
	d.forget("b")
	d.mu.Lock()
	d.halts = func(id string) bool { return id == `"doorward-leaves"` || strings.HasPrefix(id, `"before`) }
	d.mu.Unlock()
	c.says(`{"jsonrpc":"2.0","id":"last","method":"ping"}`) // finds the session gone
	last := c.answer(`"last"`)
	for acts := 0; last != nil; {
		select {
		case <-last:
			last = nil
		case proceed := <-d.arrived:
			for range random.IntN(3) {
				uri, id := uris[random.IntN(len(uris))], fmt.Sprintf(`"own %d"`, acts)
				if wants[uri] = !wants[uri]; wants[uri] {
					c.asks(uriLine(id, "resources/subscribe", uri), id)
				} else {
					c.asks(uriLine(id, "resources/unsubscribe", uri), id)
				}
				acts++
			}
			close(proceed)
		}
	}
	go func() { // what is repeated later waits no more
		for {
			select {
			case proceed := <-d.arrived:
				close(proceed)
			case <-t.Context().Done():
				return
			}
		}
	}()
	maps.DeleteFunc(wants, func(_ string, wanted bool) bool { return !wanted })
	want := slices.Sorted(maps.Keys(wants))
	if !doortest.Becomes(20*time.Second, func() bool { return slices.Equal(d.keeps(), want) }) {
		t.Errorf("the new session has %q, and its client wants %q", d.keeps(), want)
	}
}

// caller is a stdio client at a shim.
type caller struct {
	t  *testing.T
	in io.Writer

	mu      sync.Mutex
	answers map[string]chan struct{} // by raw id; closed once the answer has come
}

// connects begins a conversation with a daemon.
func connects(t *testing.T, d http.Handler) *caller {
	t.Helper()
	client := served(t, d)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	c := &caller{t: t, in: inW, answers: make(map[string]chan struct{})}
	go func() {
		Connect(context.Background(), client, ConnectOptions{In: inR, Out: outW, Log: slog.New(slog.DiscardHandler)})
		outW.Close()
	}()
	over := make(chan struct{})
	go func() {
		defer close(over)
		for lines := bufio.NewScanner(outR); lines.Scan(); {
			if m, err := wire.Parse(lines.Bytes(), wire.FromServer); err == nil && m.Kind == wire.Response {
				close(c.answer(string(m.ID)))
			}
		}
	}()
	t.Cleanup(func() { inW.Close(); <-over })
	return c
}

func (c *caller) says(line string) { fmt.Fprintln(c.in, line) }

// answer returns the channel that is closed once the request has been answered.
func (c *caller) answer(id string) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers[id] == nil {
		c.answers[id] = make(chan struct{})
	}
	return c.answers[id]
}

// asks sends a request and waits for its answer.
func (c *caller) asks(line, id string) {
	c.t.Helper()
	c.says(line)
	select {
	case <-c.answer(id):
	case <-time.After(20 * time.Second):
		c.t.Fatalf("no answer to %s", line)
	}
}
