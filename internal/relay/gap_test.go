package relay

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/upstream"
)

// cutter is a proxy before a server that can end the streams which are open.
type cutter struct {
	*httptest.Server
	mu   sync.Mutex
	ends []context.CancelFunc
}

func cut(t *testing.T, s *script) *cutter {
	t.Helper()
	to, err := url.Parse(s.address)
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval, proxy.ErrorLog = -1, log.New(io.Discard, "", 0)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := context.WithCancel(r.Context())
		defer end()
		if r.Method == http.MethodGet {
			c.mu.Lock()
			c.ends = append(c.ends, end)
			c.mu.Unlock()
		}
		proxy.ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(func() { c.CloseClientConnections(); c.Close() })
	return c
}

// streams returns how many streams there have ever been.
func (c *cutter) streams() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ends)
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, end := range c.ends {
		end()
	}
}

// through makes a server be reached through the proxy.
func (c *cutter) through(_ *Server, d *upstream.Definition) { d.URL = c.URL }

// Clients are told to look again at what a legacy server reports changes of when its stream
// for such reports was interrupted.
func TestAnInterruptedStreamMakesClientsLookAgain(t *testing.T) {
	t.Parallel()
	caps := `{"tools":{"listChanged":true},"prompts":{},"resources":{"listChanged":true,"subscribe":true}}`
	for client, listen := range map[string]func(*house) *reply{
		"modern": func(h *house) *reply {
			r, _ := h.modern("/mcp/s", "uid:1000").subscribe(`{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["file:///a"]}`)
			return r
		},
		"legacy": func(h *house) *reply {
			c := h.legacy("/mcp/s", "uid:1000", `{}`)
			c.call("resources/subscribe", `{"uri":"file:///a"}`)
			return c.listen()
		},
	} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			s := web(t, "s", "legacy")
			s.caps = caps
			wire := cut(t, s)
			r := listen(build(t, []Server{s.server(wire.through)}))
			eventually(t, "the stream", func() bool { return wire.streams() == 1 })
			wire.cut()
			equal(t, "a list", text(r.next(), "method"), protocol.ToolsChanged)
			equal(t, "another list", text(r.next(), "method"), protocol.ResourcesChanged)
			equal(t, "a resource", text(r.next(), "params", "uri"), "file:///a")
		})
	}
}
