package client

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// socketPath returns the path of a socket, short enough for each system.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// serveAt serves h on a socket until the test ends.
func serveAt(t *testing.T, socket string, h http.Handler) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
}

// served returns a client of a daemon that answers with h until the test ends.
func served(t *testing.T, h http.Handler) *Client {
	t.Helper()
	socket := socketPath(t)
	serveAt(t, socket, h)
	c := New(socket, "test")
	t.Cleanup(c.Close)
	return c
}

// resumed lets a shim whose session a was replaced by b take over the name of a. The daemon
// answers the first attempt with the status, and with the member of a JSON-RPC answer; empty: it
// loses that answer. It accepts the later ones. resumed returns the number of attempts, and the
// session that holds the name when no further one follows.
func resumed(t *testing.T, status int, answer string) (attempts int, holder string) {
	t.Helper()
	var n atomic.Int32
	c := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m, _ := wire.Parse(body, wire.FromClient)
		name, _ := rawjson.GetString(m.Params, "name")
		if got := r.Header.Get("Mcp-Session-Id") + " " + name + " " + r.Header.Get(protocol.HeaderFormer); got != "b register "+protocol.SessionDigest("a") {
			t.Errorf("the daemon is asked for %q", got)
		}
		w.Header().Set("Content-Type", "application/json")
		switch first := n.Add(1) == 1; {
		case first && answer == "":
			panic(http.ErrAbortHandler)
		case first:
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, m.ID, answer)
		default:
			w.Write(rawjson.AppendResult(nil, m.ID, []byte(`{"content":[]}`)))
		}
	}))
	s := &shim{c: c, ctx: t.Context(), o: ConnectOptions{Server: "agent", Out: io.Discard, Log: slog.New(slog.DiscardHandler)}}
	l := &s.legacy
	l.holder, l.id, l.version = "a", "b", protocol.LatestLegacy
	l.resume(s)
	until(t, "the takeover ends", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		holder = l.holder
		return holder != "a"
	})
	return int(n.Load()), holder
}

// The takeover of a name that fails only for now is tried again. Any other refusal ends it, and
// the name is not asked for in later sessions either.
func TestATakeoverIsTriedAgainWhereItMaySucceed(t *testing.T) {
	t.Parallel()
	type refusal struct {
		status int
		answer string
		again  bool
	}
	all := map[string]refusal{
		"lost":                    {answer: "", again: true},
		"a tool error for now":    {http.StatusOK, `"result":{"isError":true,"structuredContent":{"error":{"retryable":true}}}`, true},
		"a tool error":            {http.StatusOK, `"result":{"isError":true,"structuredContent":{"error":{"retryable":false}}}`, false},
		"a tool error in no form": {http.StatusOK, `"result":{"isError":true}`, false},
	}
	for code, again := range map[int]bool{1429: true, 1502: true, 1503: true, 1504: true,
		1403: false, 1400: false, 1428: false, 1430: false, 1501: false, 1505: false, -32601: false, -32602: false, -32603: false} {
		for _, status := range []int{http.StatusOK, http.StatusServiceUnavailable} {
			all[fmt.Sprint(code, " with status ", status)] = refusal{status, fmt.Sprintf(`"error":{"code":%d,"message":"no"}`, code), again}
		}
	}
	for what, c := range all {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			attempts, holder := resumed(t, c.status, c.answer)
			switch {
			case c.again && (attempts != 2 || holder != "b"):
				t.Errorf("%d attempts, and the name is of session %q; want a second one that gives it to b", attempts, holder)
			case !c.again && (attempts != 1 || holder != ""):
				t.Errorf("%d attempts, and the name is of session %q; want one, and of none", attempts, holder)
			}
		})
	}
}
