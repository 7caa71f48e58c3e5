package front

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/sse"
)

var (
	handshakes = strings.Fields("2024-11-05 2025-03-26 2025-06-18 2025-11-25")
	headers    = append(slices.Clone(handshakes), "", "2026-07-28", "2026-07-29", "2025-11-26", "1.0", "2025-11-25, 2025-11-25")
)

// belongs is the rule for a header in a session, independent of the code under test: absent,
// the same version, or the one pair of decision 0039.
func belongs(header, session string) bool {
	return slices.Contains([]string{"", session}, header) || session+" "+header == "2025-11-25 2025-03-26"
}

// versionCase is one request of a session: its verb, the version of the session and what
// the header says.
type versionCase struct{ verb, session, header string }

func (c versionCase) String() string {
	return fmt.Sprintf("%s in a session of %s with header %q", c.verb, c.session, c.header)
}

func versionCases(verbs ...string) (all []versionCase) {
	for _, verb := range verbs {
		for _, session := range handshakes {
			if verb == "batch" && session != "2025-03-26" {
				continue // refused with any header
			}
			for _, header := range headers {
				all = append(all, versionCase{verb, session, header})
			}
		}
	}
	return all
}

// send makes the request of a case in the session id.
func (c versionCase) send(h *house, id string) answer {
	header := []string{"Mcp-Session-Id", id}
	if c.header != "" {
		header = append(header, "Mcp-Protocol-Version", c.header)
	}
	switch c.verb {
	case "batch":
		return h.do("POST", "/mcp/s", "["+echo+"]", header...)
	case "end":
		return h.do("DELETE", "/mcp/s", "", header...)
	case "listen":
		resp, _ := h.stream("GET", "/mcp/s", "", header...)
		return answer{status: resp.StatusCode}
	case "resume":
		resp, _ := h.stream("GET", "/mcp/s", "", append(header, "Last-Event-Id", "0-0")...)
		return answer{status: resp.StatusCode}
	}
	return h.do("POST", "/mcp/s", oneMessage[c.verb], header...)
}

var oneMessage = map[string]string{
	"request":      echo,
	"notification": `{"jsonrpc":"2.0","method":"notifications/x"}`,
	"answer":       `{"jsonrpc":"2.0","id":1,"result":{"answered":true}}`,
}

// A request in a session is accepted exactly when its header MCP-Protocol-Version belongs to
// the session: for every kind of request, in a session of this run and of an earlier one. A
// refused request does not reach the Handler, and the session stays usable.
func TestTheVersionInTheHeaderIsThatOfTheSession(t *testing.T) {
	t.Parallel()
	cases := versionCases("request", "notification", "answer", "batch", "listen", "resume", "end")
	for _, earlier := range []bool{false, true} {
		t.Run(map[bool]string{false: "this run", true: "an earlier run"}[earlier], func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "sessions")
			h := run(t, dir)
			ids := make([]string, len(cases))
			for i, c := range cases {
				ids[i] = h.session(c.session)
			}
			if earlier {
				h.door.Close()
				h = run(t, dir)
			}
			for i, c := range cases {
				c.check(h, ids[i])
			}
		})
	}
}

func (c versionCase) check(h *house, id string) {
	h.t.Helper()
	before := h.count("x/y", "notifications/x")
	a := c.send(h, id)
	if belongs(c.header, c.session) || c.verb == "notification" && c.header == "2026-07-28" { // one of the modern era
		if a.status/100 != 2 {
			h.t.Errorf("%v: %d %s", c, a.status, a.body)
		}
		return
	}
	want := 400
	if a.status == 405 && strings.HasPrefix(c.header, "2026-") && !strings.Contains("request notification answer batch", c.verb) {
		want = 405 // the modern era has neither GET nor DELETE
	}
	if a.status != want {
		h.t.Errorf("%v: %d %s", c, a.status, a.body)
	}
	if slices.Contains(handshakes, c.header) && strings.Contains("request notification answer batch end", c.verb) &&
		!strings.Contains(a.body, `"code":-32600,"message":"MCP-Protocol-Version is not the version that the session negotiated","data":{"negotiated":"`+c.session+`"}`) {
		h.t.Errorf("%v: %s", c, a.body)
	}
	if h.count("x/y", "notifications/x") != before {
		h.t.Errorf("%v: the Handler saw it", c)
	}
	if a := h.do("POST", "/mcp/s", echo, "Mcp-Session-Id", id); a.status != 200 {
		h.t.Errorf("%v: the session is gone: %d", c, a.status)
	}
}

// count is how many messages of these methods have reached the Handler.
func (h *house) count(methods ...string) (n int) {
	for _, m := range h.methods() {
		if slices.Contains(methods, m) {
			n++
		}
	}
	return n
}

// An answer of a client with a wrong version in its header is refused, and the question
// stays open.
func TestAnAnswerOfAnotherVersionLeavesTheQuestionOpen(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	id := h.session("2025-06-18")
	_, events := h.stream("GET", "/mcp/s", "", "Mcp-Session-Id", id)
	got := make(chan Reply, 1)
	go func() {
		r, _ := h.door.only(t).Ask(context.Background(), "roots/list", []byte(`{}`))
		got <- r
	}()
	frame(t, events)
	versionCase{"answer", "2025-06-18", "2025-11-25"}.check(h, id)
	select {
	case r := <-got:
		t.Fatalf("answered: %s", r.Result)
	case <-time.After(20 * time.Millisecond):
	}
	versionCase{"answer", "2025-06-18", "2025-06-18"}.check(h, id)
	if r := <-got; string(r.Result) != `{"answered":true}` {
		t.Errorf("answer: %s", r.Result)
	}
}

// The same rule holds over HTTP+SSE. Before initialize any known version is accepted, in the
// request for the stream and in messages.
func TestTheVersionOverHTTPAndSSE(t *testing.T) {
	t.Parallel()
	cases := versionCases("request", "notification", "answer")
	room := len(cases) + len(headers) // each opens a stream
	h := open(t, Options{Sessions: room, SessionsPerPrincipal: room})
	for _, c := range cases {
		where, events := h.overSSE()
		header := []string{"Mcp-Protocol-Version", c.header}
		known := c.header == "" || slices.Contains(handshakes, c.header)
		if a := h.do("POST", where, strings.Replace(oneMessage["notification"], "/x", "/initialized", 1), header...); (a.status == 202) != known || !known && a.status != 400 {
			t.Errorf("%v before initialize: %d %s", c, a.status, a.body)
		}
		if a := h.do("POST", where, strings.Replace(hello, "2025-11-25", c.session, 1), "Mcp-Protocol-Version", handshakes[0]); a.status != 202 {
			t.Errorf("initialize: %d %s", a.status, a.body)
		}
		if e := frame(t, events); !strings.Contains(string(e.Data), c.session) {
			t.Errorf("initialize: %s", e.Data)
		}
		a := h.do("POST", where, oneMessage[c.verb], header...)
		if want := map[bool]int{true: 202, false: 400}[belongs(c.header, c.session)]; a.status != want {
			t.Errorf("%v: %d %s", c, a.status, a.body)
		}
	}
	for _, header := range headers {
		resp, _ := h.stream("GET", "/sse/s", "", "Mcp-Protocol-Version", header)
		known := header == "" || slices.Contains(handshakes, header)
		if want := map[bool]int{true: 200, false: 400}[known]; resp.StatusCode != want {
			t.Errorf("a stream with header %q: %d", header, resp.StatusCode)
		}
		resp.Body.Close()
	}
}

// overSSE opens a session over HTTP+SSE and returns where its messages go.
func (h *house) overSSE() (where string, events *sse.Reader) {
	_, events = h.stream("GET", "/sse/s", "")
	return string(frame(h.t, events).Data), events
}

// The header of an initialize may name any known version without effect, and a modern
// message stays modern beside the id of a legacy session. A modern notification may name its
// version in the header, in _meta or in both, but not two versions.
func TestTheVersionOutsideASession(t *testing.T) {
	t.Parallel()
	h := open(t, Options{Sessions: 100, SessionsPerPrincipal: 100})
	for _, version := range handshakes {
		for _, header := range append(handshakes, "") {
			id := h.session(version, "Mcp-Protocol-Version", header)
			versionCase{"request", version, version}.check(h, id)
		}
		for _, header := range []string{"1.0", "2025-11-26", "2026-07-28"} {
			if a := h.do("POST", "/mcp/s", strings.Replace(hello, "2025-11-25", version, 1), "Mcp-Protocol-Version", header); a.status != 400 {
				t.Errorf("initialize of %s with header %q: %d", version, header, a.status)
			}
		}
		a := h.do("POST", "/mcp/s", modernBody("x/y"), append([]string{"Mcp-Session-Id", h.session(version)}, modernHeaders...)...)
		if a.status != 200 || !strings.Contains(a.body, "io.modelcontextprotocol") {
			t.Errorf("a modern message beside a session of %s: %d %s", version, a.status, a.body)
		}
	}
	for _, header := range []string{"", "2025-11-25", "2026-07-28", "2026-07-29"} {
		for _, meta := range []string{"", "2025-11-25", "2026-07-28", "2026-07-29"} {
			said := strings.Join(slices.Compact(strings.Fields(header+" "+meta)), " ")
			body := strings.Replace(oneMessage["notification"], `"}`, `","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"`+meta+`"}}}`, 1)
			a := h.do("POST", "/mcp/s", body, "Mcp-Protocol-Version", header)
			if want := map[bool]int{true: 202, false: 400}[said == "2026-07-28"]; a.status != want {
				t.Errorf("a notification with header %q and _meta %q: %d %s", header, meta, a.status, a.body)
			}
		}
	}
}
