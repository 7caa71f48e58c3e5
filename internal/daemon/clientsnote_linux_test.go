package daemon

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// served serves MCP routes over loopback TCP with note, and returns the address.
func served(t *testing.T, c *clients, holders *peer.Holders) (addr string) {
	t.Helper()
	l, err := listen.Open(t.Context(), listen.Spec{Network: "tcp", Addr: "127.0.0.1:0"}, listen.Credential{}, listen.Options{Holders: holders})
	if err != nil {
		t.Fatal(err)
	}
	srv := &httptest.Server{Listener: l.Net(), Config: &http.Server{
		ConnContext: (&callers{}).connContext(l),
		Handler:     http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { c.note(r) }),
	}}
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// connector serves MCP routes, and returns a function that makes a request on a new
// connection.
func connector(t *testing.T, c *clients) (connect func()) {
	t.Helper()
	addr := served(t, c, peer.NewHolders(-1))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func() {
		t.Helper()
		r, err := client.Get("http://" + addr + "/mcp")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
	}
}

// TestAClientIsNotedOnce: the processes above a client are read again only when it is
// unknown, has another login, or is a shim.
func TestAClientIsNotedOnce(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		program string
		between func(c *clients)
		again   bool
	}{
		"the same":        {"", func(*clients) {}, false},
		"forgotten":       {"", func(c *clients) { clear(c.known) }, true},
		"another login":   {"", func(c *clients) { changeLogins(c.whole) }, true},
		"another process": {"", func(c *clients) { clear(c.whole) }, true},
		"a shim":          {program, func(*clients) {}, true},
		"become a shim":   {"", func(c *clients) { c.program = program }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &clients{program: test.program, log: slog.New(slog.DiscardHandler)}
			connect := connector(t, c)
			connect()
			if len(c.known) != 1 || len(c.orphans.oldestBelow) == 0 {
				t.Fatalf("after the first connection: %v, %v", c.known, c.orphans.oldestBelow)
			}
			test.between(c)
			clear(c.orphans.oldestBelow)
			connect()
			if again := len(c.orphans.oldestBelow) > 0; again != test.again {
				t.Errorf("noted again: %v", again)
			}
		})
	}
}

func changeLogins(whole map[string]uint32) {
	for process := range whole {
		whole[process]--
	}
}
