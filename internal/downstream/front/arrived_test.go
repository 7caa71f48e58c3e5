package front

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/test/doortest"
)

// arriving is a Handler that notes the arrival time of a message.
type arriving struct{ at atomic.Pointer[time.Time] }

func (a *arriving) note(x *Exchange) {
	at := x.Arrived()
	a.at.Store(&at)
}

func (*arriving) Known(*principal.Principal, string) bool { return true }
func (a *arriving) Request(_ context.Context, x *Exchange) Reply {
	a.note(x)
	return Reply{Result: []byte(`{}`)}
}
func (a *arriving) Notification(_ context.Context, x *Exchange) *wire.Error {
	a.note(x)
	return nil
}

// The arrival time of a message is taken before Host, Origin and credential are checked, in
// both eras, for requests and notifications. Without Options.Timed it is not taken.
func TestARequestArrivesBeforeItIsAuthenticated(t *testing.T) {
	t.Parallel()
	for _, timed := range []bool{true, false} {
		var screened atomic.Pointer[time.Time]
		h := &arriving{}
		d := New(Options{Handler: h, Timed: timed, BodyBytes: 1 << 20, Sessions: 10, SessionsPerPrincipal: 10, IdleSession: time.Hour,
			Screen:       func(*http.Request) bool { now := time.Now(); screened.Store(&now); return true },
			Authenticate: func(*http.Request) (*principal.Principal, error) { return alice, nil }})
		web := httptest.NewServer(d)
		session := ""
		post := func(body string, header map[string]string) {
			t.Helper()
			h.at.Store(nil)
			r, err := http.NewRequest(http.MethodPost, web.URL+"/mcp", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			for k, v := range header {
				r.Header.Set(k, v)
			}
			resp, err := doortest.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
				session = id
			}
			at := h.at.Load()
			switch {
			case at == nil:
				t.Errorf("%s did not reach the handler: %s", body, resp.Status)
			case at.IsZero() == timed, timed && at.After(*screened.Load()):
				t.Errorf("timed %v: %s arrived at %v, and was screened at %v", timed, body, at, screened.Load())
			}
		}
		modern := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
		meta := `"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`
		post(`{"jsonrpc":"2.0","id":1,"method":"tools/list",`+meta+`}`, modern)
		post(`{"jsonrpc":"2.0","method":"notifications/x",`+meta+`}`, modern)
		post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, nil)
		post(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, map[string]string{"Mcp-Session-Id": session})
		post(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1}}`, map[string]string{"Mcp-Session-Id": session})
		web.Close()
		d.Close()
	}
}
