package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// fakeEvents is a server of revision 2024-11-05: GET opens the stream, POST to
// the announced endpoint is answered on it.
type fakeEvents struct {
	*httptest.Server
	t        testing.TB
	announce string // the first bytes of the stream
	status   int    // of a POST; 0: 202

	mu     sync.Mutex
	send   func(format string, args ...any)
	end    chan struct{}
	posts  []seen
	opened atomic.Int32
}

func newFakeEvents(t testing.TB, announce string) *fakeEvents {
	f := &fakeEvents{t: t, announce: announce, end: make(chan struct{})}
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

func (f *fakeEvents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/messages":
		f.post(w, r)
	case r.Method == http.MethodGet && r.URL.Path == "/sse":
		f.opened.Add(1)
		f.mu.Lock()
		f.send = events(w)
		f.send("%s", f.announce)
		f.mu.Unlock()
		select {
		case <-r.Context().Done():
		case <-f.end:
		}
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func (f *fakeEvents) post(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var m fakeMessage
	if err := json.Unmarshal(body, &m); err != nil {
		f.t.Errorf("the server got %q", body)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.posts = append(f.posts, seen{r.URL.RequestURI(), r.Header.Clone(), m, string(body)})
	if f.status != 0 && m.Method == "tools/call" {
		w.WriteHeader(f.status)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	switch m.Method {
	case methodInitialize:
		f.send("event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"protocolVersion\":\"2024-11-05\",\"capabilities\":{}}}\n\n", m.ID)
	case "tools/call":
		token := rawjson.GetPath(m.Params, "_meta", "progressToken")
		if token != nil {
			f.send("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":1}}\n\n", token)
		}
		if !strings.Contains(string(m.Params), "hang") {
			f.send("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", m.ID, m.Params)
		}
	}
}

func (f *fakeEvents) all() []seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]seen(nil), f.posts...)
}

func (f *fakeEvents) server(change ...func(*Definition, *Deps)) *Server {
	return webServer(f.t, f.URL+"/sse", append([]func(*Definition, *Deps){func(d *Definition, _ *Deps) {
		d.Kind = KindSSE
		d.Headers = http.Header{"Authorization": {"Bearer s"}}
	}}, change...)...)
}

const announced = "event: endpoint\ndata: /messages?session_id=abc\n\n"

func TestSSECall(t *testing.T) {
	t.Parallel()
	for _, announce := range []string{announced, "event: endpoint\r\ndata: $URL/messages?session_id=abc\r\n\r\n", "event: endpoint\ndata: messages?session_id=abc\n\n"} {
		f := newFakeEvents(t, announce)
		f.announce = strings.ReplaceAll(announce, "$URL", f.URL)
		c := dialLegacy(t, f.server(), nil)
		var got recorder
		r := tool("echo", `"n":9007199254740993`)
		r.ProgressToken = []byte(`"mine"`)
		reply := mustCall(t, c, r, got.on)
		if rawjson.Get(reply.Result, "arguments") == nil || len(got.all()) != 1 || string(rawjson.Get(got.all()[0].Params, "progressToken")) != `"mine"` {
			t.Errorf("got %s, %+v", reply.Result, got.all())
		}
		if err := c.Answer(context.Background(), wire.IntID(9), Reply{Result: []byte(`{}`)}); err != nil {
			t.Error(err)
		}
		posts := f.all()
		if len(posts) != 4 || posts[1].Method != methodInitialized || strings.TrimSpace(posts[3].body) != `{"jsonrpc":"2.0","id":9,"result":{}}` {
			t.Errorf("posts %+v", posts)
		}
		for _, p := range posts {
			if p.httpMethod != "/messages?session_id=abc" || p.header.Get("Authorization") != "Bearer s" {
				t.Errorf("a post to %s with %v", p.httpMethod, p.header)
			}
		}
	}
}

func TestSSEFallbackOfStreamableHTTP(t *testing.T) {
	t.Parallel()
	f := newFakeEvents(t, announced)
	s := f.server(func(d *Definition, _ *Deps) { d.Kind = KindHTTP })
	if _, _, err := s.DialModern(testContext(t), []byte(modernMeta), nil); !errors.Is(err, ErrEra) {
		t.Errorf("modern: %v", err)
	}
	c := dialLegacy(t, s, nil)
	mustCall(t, c, tool("echo"), nil)
	if _, ok := c.(*sseConn); !ok {
		t.Errorf("a %T", c)
	}
}

func TestSSEForeignEndpoint(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer other.Close()
	otherURL, _ := url.Parse(other.URL)
	for _, endpoint := range []string{
		other.URL + "/messages", "//" + otherURL.Host + "/messages", "https://$HOST/messages", "http://localhost:$PORT/messages",
		"http://user:pw@$HOST/messages", "http://$HOST@" + otherURL.Host + "/messages", `\\` + otherURL.Host + `\messages`, "file:///etc/passwd",
		"http://" + otherURL.Host + "#@$HOST/messages", "javascript:alert(1)", "/messages#" + strings.Repeat("x", maxEndpoint), "http:" + otherURL.Host,
	} {
		f := newFakeEvents(t, "")
		u, _ := url.Parse(f.URL)
		endpoint = strings.NewReplacer("$HOST", u.Host, "$PORT", u.Port()).Replace(endpoint)
		f.announce = "event: endpoint\ndata: " + endpoint + "\n\n"
		_, _, err := f.server().DialLegacy(testContext(t), []byte(initParams), nil)
		if !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", endpoint, err)
		}
		if n := len(f.all()); n != 0 {
			t.Errorf("%s: %d messages sent", endpoint, n)
		}
	}
	if hits.Load() != 0 {
		t.Errorf("%d requests at the other host", hits.Load())
	}
}

func TestSSESecondEndpointChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFakeEvents(t, announced+"event: endpoint\ndata: /elsewhere\n\n")
	s := f.server()
	c := dialLegacy(t, s, nil)
	mustCall(t, c, tool("echo"), nil)
	if n := s.Counts().Violations; n != 1 {
		t.Errorf("%d violations counted", n)
	}
}

func TestSSEBadStreams(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, announce string
		want           error
	}{
		{"another event first", "event: message\ndata: {}\n\n" + announced, ErrProtocol},
		{"endless event", "event: endpoint\ndata: " + strings.Repeat("x", 2<<20), ErrLost},
		{"nothing", "", ErrTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFakeEvents(t, tc.announce)
			if tc.want != ErrTimeout {
				close(f.end)
			}
			s := f.server(func(d *Definition, _ *Deps) { d.Timeout, d.MaxMessage = 1e9, 1<<20 })
			_, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil)
			if tc.name == "endless event" {
				tc.want = ErrTooLarge
			}
			if !errors.Is(err, tc.want) || wrapped(err) != 1 {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestSSEStreamEnds(t *testing.T) {
	t.Parallel()
	f := newFakeEvents(t, announced)
	c := dialLegacy(t, f.server(), nil)
	failed := make(chan error, 1)
	go func() {
		_, err := c.Call(testContext(t), tool("hang"), nil)
		failed <- err
	}()
	eventually(t, "the call arrives", func() bool { return len(f.all()) == 3 })
	close(f.end)
	if err := <-failed; !errors.Is(err, ErrLost) {
		t.Errorf("the call in flight: %v", err)
	}
	waitDone(t, c)
	if _, err := c.Call(testContext(t), tool("echo"), nil); !errors.Is(err, ErrNotSent) {
		t.Errorf("afterwards: %v", err)
	}
}

func TestSSECancelAndClose(t *testing.T) {
	t.Parallel()
	f := newFakeEvents(t, announced)
	c := dialLegacy(t, f.server(), nil)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		eventually(t, "the call arrives", func() bool { return len(f.all()) == 3 })
		cancel()
	}()
	if _, err := c.Call(ctx, tool("hang"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	eventually(t, "the cancellation", func() bool { return len(f.all()) == 4 && f.all()[3].Method == methodCancelled })
	c.Close()
	waitDone(t, c)
	if !errors.Is(c.Err(), ErrLost) {
		t.Errorf("Err: %v", c.Err())
	}
}

func TestSSEPostStatuses(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]error{404: ErrSession, 500: ErrLost, 503: ErrNotSent, 401: ErrProtocol, 307: ErrProtocol} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			f := newFakeEvents(t, announced)
			f.status = status
			c := dialLegacy(t, f.server(), nil)
			if _, err := c.Call(testContext(t), tool("echo"), nil); !errors.Is(err, want) || wrapped(err) != 1 {
				t.Errorf("got %v", err)
			}
			if want == ErrSession {
				waitDone(t, c)
			}
		})
	}
}

func TestSSEHasNoModernEra(t *testing.T) {
	t.Parallel()
	f := newFakeEvents(t, announced)
	if _, _, err := f.server().DialModern(testContext(t), []byte(modernMeta), nil); !errors.Is(err, ErrEra) || f.opened.Load() != 0 {
		t.Errorf("got %v, %d streams", err, f.opened.Load())
	}
}
