package front

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// An answer that is sent at once says how long it is, whatever its length, and a HEAD how long the
// answer to a GET is.
func TestAnAnswerHasItsLength(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	id := h.session("2025-11-25")
	var size atomic.Int64
	h.serve = func(context.Context, *Exchange) Reply {
		return Reply{Result: []byte(`"` + strings.Repeat("x", int(size.Load())) + `"`)}
	}
	for n := shortAnswer - 100; n < shortAnswer+100; n++ {
		size.Store(int64(n))
		a := h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":1,"method":"x/y"}`, "Mcp-Session-Id", id)
		if a.status != http.StatusOK || a.header.Get("Content-Length") != strconv.Itoa(len(a.body)) || len(a.body) < n {
			t.Fatalf("%d: %d %v", n, a.status, a.header)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		a := h.do(method, "/health", "")
		if want := strconv.Itoa(len(`{"status":"ok"}`)); a.header.Get("Content-Length") != want {
			t.Errorf("%s: %v, want %s", method, a.header, want)
		}
	}
}
