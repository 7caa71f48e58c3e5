package front

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/trust/principal"
)

// deliveries are Options with one valid delivery session, "good".
func deliveries() Options {
	return Options{Delivery: func(r *http.Request, who *principal.Principal) (string, error) {
		if r.Header.Get("Doorward-Session") != "good" {
			return "", errors.New("secret detail")
		}
		return "d1 of " + who.Name(), nil
	}}
}

// The delivery session in a header reaches the Handler with the message that carries it, in
// both eras, and with no other message of the MCP session.
func TestADeliverySessionReachesTheHandler(t *testing.T) {
	t.Parallel()
	h := open(t, deliveries())
	var got []string
	h.watch = func(x *Exchange) { got = append(got, x.Delivery) }
	id := h.session("2025-11-25", "Doorward-Session", "good")
	legacy := func(header ...string) {
		h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":7,"method":"x/y","params":{}}`, append(header, "Mcp-Session-Id", id)...)
	}
	modern := func(header ...string) {
		h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":7,"method":"x/y","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
			append(header, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "x/y")...)
	}
	legacy()
	legacy("Doorward-Session", "good")
	legacy("Doorward-Session", "good", "Who", "bob") // the MCP session is alice's: unknown to bob
	modern()
	modern("Doorward-Session", "good", "Who", "bob")
	want := []string{"d1 of uid:1", "", "d1 of uid:1", "", "d1 of uid:2"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A request with an invalid delivery session is answered 401 on every MCP route and method.
// It does not reach the Handler, and the caller does not see the reason.
func TestADeliverySessionThatIsNotGoodIs401(t *testing.T) {
	t.Parallel()
	h := open(t, deliveries())
	id := h.session("2025-11-25")
	before := h.reached()
	for _, at := range [][2]string{{"POST", "/mcp"}, {"POST", "/mcp/s"}, {"GET", "/mcp/s"}, {"DELETE", "/mcp/s"}, {"GET", "/sse/s"}, {"POST", "/messages/s?session_id=x"}} {
		a := h.do(at[0], at[1], `{"jsonrpc":"2.0","id":7,"method":"x/y"}`, "Doorward-Session", "bad", "Mcp-Session-Id", id)
		if a.status != 401 || a.header.Get("WWW-Authenticate") == "" || strings.Contains(a.body, "detail") {
			t.Errorf("%s %s: %d %q", at[0], at[1], a.status, a.body)
		}
	}
	if a := h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":7,"method":"x/y"}`, "Doorward-Session", "good", "Doorward-Session", "bad", "Mcp-Session-Id", id); a.status != 400 {
		t.Errorf("two of them: %d", a.status)
	}
	if h.reached() != before {
		t.Error("a refused message reached the Handler")
	}
	if a := h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":7,"method":"x/y","params":{}}`, "Mcp-Session-Id", id); a.status != 200 {
		t.Errorf("the session without it afterwards: %d", a.status)
	}
}

// The routes of instructions refuse with problem documents; a caller that is not authenticated
// gets a fixed body. Other routes refuse in plain text.
func TestTheRoutesOfInstructionsAnswerWithProblemDocuments(t *testing.T) {
	t.Parallel()
	o := deliveries()
	o.Ahead = func(w http.ResponseWriter, r *http.Request, path string) bool {
		if path != "/auth/health" {
			return false
		}
		w.Write([]byte("healthy"))
		return true
	}
	o.Paths = map[string]func(http.ResponseWriter, *http.Request, *principal.Principal){
		"/auth/": func(w http.ResponseWriter, r *http.Request, who *principal.Principal) { w.Write([]byte(who.Name())) }}
	h := open(t, o)
	if a := h.do("GET", "/auth/health", "", "Who", "nobody"); a.status != 200 || a.body != "healthy" {
		t.Errorf("what needs no caller: %d %q", a.status, a.body)
	}
	if a := h.do("GET", "/auth/health", "", "Who", "nobody", "Origin", "https://evil.example"); a.status != 403 {
		t.Errorf("of another origin: %d", a.status)
	}
	a := h.do("GET", "/auth/session", "", "Who", "nobody")
	const body = `{"type":"about:blank","title":"Unauthorized","status":401,"code":"unauthenticated"}` + "\n"
	if a.status != 401 || a.body != body || a.header.Get("Content-Type") != "application/problem+json" || a.header.Get("WWW-Authenticate") == "" {
		t.Errorf("nobody: %d %v %q", a.status, a.header, a.body)
	}
	if a := h.do("GET", "/auth/session", "", "Who", "limited"); a.status != 429 || !strings.Contains(a.body, `"code":"rate_limited"`) {
		t.Errorf("limited: %d %q", a.status, a.body)
	}
	if a := h.do("GET", "/metrics", "", "Who", "nobody"); a.status != 401 || a.body != "Unauthorized\n" {
		t.Errorf("elsewhere: %d %q", a.status, a.body)
	}
	if a := h.do("GET", "/auth/templates/x", "", "Who", "bob"); a.body != "uid:2" {
		t.Errorf("below the prefix: %d %q", a.status, a.body)
	}
	if a := h.do("GET", "/auth", ""); a.status != 404 {
		t.Errorf("the prefix without its slash: %d", a.status)
	}
}

// A transient answer is not sent again to a client that resumes the stream, whether it is
// the first message of its stream or follows others.
func TestATransientAnswerIsNotKeptForResumption(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{false, true} {
		h := open(t, Options{})
		id := h.session("2025-11-25")
		h.serve = func(_ context.Context, x *Exchange) Reply {
			if before {
				x.Notify("notifications/message", []byte(`{"data":"on the way"}`))
			}
			return Reply{Result: []byte(`{"text":"protected"}`), Transient: true}
		}
		first := h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}`, "Mcp-Session-Id", id, "Accept", "text/event-stream")
		if !strings.Contains(first.body, "protected") {
			t.Fatalf("before %v: the first response is %q", before, first.body)
		}
		for _, event := range []string{"1-0", "1-1", "2-0"} {
			a := h.do("GET", "/mcp/s", "", "Mcp-Session-Id", id, "Accept", "text/event-stream", "Last-Event-ID", event, "Connection", "close")
			if strings.Contains(a.body, "protected") {
				t.Errorf("before %v: sent again after %s: %q", before, event, a.body)
			}
		}
	}
}
