package client

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/trust/wire"
)

// The session in which a name was registered is known from the answer. A refusal changes
// nothing: the name of an earlier session may still be taken over. After a lost answer the name
// may have been registered, which matters where no other one is known.
func TestTheSessionThatHoldsTheName(t *testing.T) {
	t.Parallel()
	const refused = `{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":true}}`
	for what, c := range map[string]struct{ server, tool, before, answer, want string }{
		"registered":                  {"agent", "register", "a", `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`, "b"},
		"registered on the aggregate": {"", "agent__register", "", `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`, "b"},
		"another server's tool":       {"notes", "register", "", `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`, ""},
		"another tool":                {"agent", "inbox", "a", `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`, "a"},
		"refused":                     {"agent", "register", "a", refused, "a"},
		"refused by the daemon":       {"agent", "register", "a", `{"jsonrpc":"2.0","id":1,"error":{"code":1403,"message":"no"}}`, "a"},
		"lost":                        {"agent", "register", "a", ``, "a"},
		"lost, and no other is known": {"agent", "register", "", ``, "b"},
		"given back":                  {"agent", "unregister", "a", `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`, ""},
		"not given back":              {"agent", "unregister", "a", refused, "a"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := &shim{c: &Client{}, ctx: t.Context(), o: ConnectOptions{Server: c.server, Out: io.Discard, Log: slog.New(slog.DiscardHandler)}}
			s.legacy.holder = c.before
			m := &wire.Message{Kind: wire.Request, ID: wire.ID("1"), Method: "tools/call", Params: []byte(`{"name":"` + c.tool + `"}`)}
			resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(c.answer))}
			s.legacy.relay(s, t.Context(), m, &response{resp, "b"})
			if got := s.legacy.holder; got != c.want {
				t.Errorf("the name is of session %q, want %q", got, c.want)
			}
		})
	}
}
