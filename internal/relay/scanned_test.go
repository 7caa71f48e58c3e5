package relay

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/scan"
)

// scannedBy puts a server under content rules that look for canaries, which
// JSON can write in many ways.
func scannedBy(t testing.TB, mode scan.Mode) func(*Server, *upstream.Definition) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "patterns")
	if err := os.WriteFile(path, []byte("canary canary-[0-9]+\nkey (?i)key=(\\S+)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	scanner, err := scan.NewLibrary(func(string, error) {}).Scanner(mode, path)
	if err != nil {
		t.Fatal(err)
	}
	return func(s *Server, _ *upstream.Definition) { s.Scan = scanner }
}

// talker says the canary in every way that a server has.
func talker(q *query) {
	q.notify("notifications/message", `{"level":"error","data":"log canary\u002d4711"}`)
	if token := field(q.raw, "params", "_meta", "progressToken"); token != "" {
		q.notify("notifications/progress", `{"progressToken":`+token+`,"progress":1,"message":"progress canary-4711"}`)
	}
	switch q.name() {
	case "fail":
		q.emit([]byte(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"error":{"code":-32050,"message":"no canary-4711","data":{"x":["canary-4711",1.0]}}}`))
	case "quiet":
		q.result(`{"content":[],"y":1.0}`)
	default:
		q.result(`{"content":[{"type":"text","text":"a canary-4711 and canary\u002d4712"}],"structuredContent":{"canary-4713":"KEY=x y"},"y":1.0,"got":%s}`, orNull(rawjson.Get(q.Params, "arguments")))
	}
}

func TestScanRedacts(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		for _, era := range []string{"legacy", "modern"} {
			t.Run(kind+" "+era, func(t *testing.T) {
				t.Parallel()
				s := start(t, "s", era)
				s.serve = talker
				h := build(t, []Server{s.server(scannedBy(t, scan.Redact))})
				var all string
				if era == "legacy" {
					c := h.legacy("/mcp/s", "uid:1000", `{}`)
					r := c.begin("tools/call", `{"name":"t","arguments":{"a":"x c\u0061nary-4711","b":1.50},"_meta":{"progressToken":"canary-4711"}}`)
					end := r.end()
					all = join(r.before) + end
					equal(t, "progress", field(r.before[1], "params"), `{"progressToken":"canary-4711","progress":1,"message":"progress [redacted:canary]"}`)
				} else {
					m := h.modern("/mcp/s", "uid:1000")
					m.meta = []rawjson.Edit{{Key: wire.MetaLogLevel, Value: []byte(`"info"`)}, {Key: "progressToken", Value: []byte(`7`)}}
					r := m.begin("tools/call", `{"name":"t","arguments":{"a":"x c\u0061nary-4711","b":1.50}}`)
					end := r.end()
					all = join(r.before) + end
				}
				contains(t, "result", all, `{"content":[{"type":"text","text":"a [redacted:canary] and [redacted:canary]"}],"structuredContent":{"[redacted:canary]":"KEY=[redacted:key] y"},"y":1.0,"got":{"a":"x [redacted:canary]","b":1.50}`,
					`"data":"log [redacted:canary]"`)
				equal(t, "what the server got", field(s.last("tools/call").raw, "params", "arguments"), `{"a":"x [redacted:canary]","b":1.50}`)
				d := h.decided("tools/call", "s/t")
				h.recorded("what was found", func(r record) bool {
					return r.Kind == audit.Event && r.Source == "scan" && r.Rule == "scan.canary" && r.Result == "redacted" && r.Ref == d.Seq && r.Resource == "s/t"
				})
				h.recorded("by rule", func(r record) bool { return r.Rule == "scan.key" && r.Ref == d.Seq })
				noCanary(t, h)
			})
		}
	}
}

// noCanary looks through the whole record.
func noCanary(t *testing.T, h *house) {
	t.Helper()
	lines, err := auditlog.Tail(h.dir, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		if strings.Contains(string(l), "canary-") {
			t.Errorf("the record holds what was found: %s", l)
		}
	}
}

func TestScanBlocks(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "both")
	s.serve = talker
	h := build(t, []Server{s.server(scannedBy(t, scan.Block))})
	for client, call := range clients(h, "/mcp/s", "uid:1000") {
		for what, params := range map[string]string{
			"result": `{"name":"t","arguments":{}}`, "error": `{"name":"fail","arguments":{}}`, "argument": `{"name":"quiet","arguments":{"a":["c\u0061nary-4711"]}}`,
		} {
			sent := len(s.got("tools/call"))
			end := call("tools/call", params)
			ref := field(end, "error", "data", "ref")
			equal(t, client+" "+what, field(end, "error"), `{"code":1403,"message":"Blocked by a content rule","data":{"ref":`+ref+`}}`)
			r := h.recorded("the refusal", func(r record) bool {
				return ref != "" && r.Rule == "scan.canary" && ref == strconv.FormatUint(r.Seq, 10)
			})
			if r.Decision != "deny" || h.outcome(record{Seq: r.Ref}) != "blocked" {
				t.Errorf("%s %s: %+v", client, what, r)
			}
			if reached := len(s.got("tools/call")) > sent; reached == (what == "argument") {
				t.Errorf("%s %s: reached the server: %v", client, what, reached)
			}
		}
		equal(t, client+" nothing in it", field(call("tools/call", `{"name":"quiet","arguments":{"a":1.0}}`), "result", "y"), "1.0")
	}
	noCanary(t, h)
}

func TestScanMonitors(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	s.serve = talker
	h := build(t, []Server{s.server(scannedBy(t, scan.Monitor))})
	c := h.legacy("/mcp/s", "uid:1000", `{}`)
	r := c.begin("tools/call", `{"name":"t","arguments":{"a":"c\u0061nary-4711"}}`)
	end := r.end()
	contains(t, "as it came", end, `"text":"a canary-4711 and canary\u002d4712"`, `"got":{"a":"c\u0061nary-4711"}`)
	contains(t, "on the way", join(r.before), `"data":"log canary\u002d4711"`)
	h.recorded("counted", func(r record) bool { return r.Rule == "scan.canary" && r.Result == "found" })
	noCanary(t, h)
}

// Content rules also apply to what a server says outside of calls, to its
// questions and to the answers.
func TestScanOfStreamsAndQuestions(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	asked := make(chan string, 1)
	s.serve = func(q *query) {
		asked <- q.ask("elicitation/create", `{"message":"tell canary-4711","requestedSchema":{}}`)
		q.result(`{}`)
	}
	h := build(t, []Server{s.server(scannedBy(t, scan.Redact))})
	c := h.legacy("/mcp/s", "uid:1000", elicits)
	stream := c.listen()
	s.open()[0].tell("notifications/message", `{"level":"info","data":"canary-4711"}`)
	equal(t, "unasked", field(stream.next(), "params"), `{"level":"info","data":"[redacted:canary]"}`)
	h.recorded("of it", func(r record) bool {
		return r.Source == "scan" && r.Action == "notifications/message" && r.Rule == "scan.canary" && r.Resource == "s"
	})
	for range 50 {
		s.open()[0].tell("notifications/message", `{"level":"info","data":"canary-4711"}`)
	}
	r := c.begin("tools/call", `{"name":"t"}`)
	question := r.nextOf("elicitation/create")
	contains(t, "question", question, `"message":"[s] tell [redacted:canary]"`)
	c.answer(question, `{"action":"accept","content":{"x":"canary-4711"}}`)
	contains(t, "answer", <-asked, `"content":{"x":"[redacted:canary]"}`)
	r.end()
	n := 0
	for _, r := range h.records() {
		if r.Source == "scan" && r.Action == "notifications/message" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d records of what is said unasked", n)
	}
	noCanary(t, h)
}

func TestScanBlocksQuestionsAndNotifications(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	asked := make(chan string, 1)
	s.serve = func(q *query) {
		asked <- q.ask("elicitation/create", `{"message":"tell canary-4711","requestedSchema":{}}`)
		q.notify("notifications/message", `{"level":"info","data":"canary-4711"}`)
		q.result(`{}`)
	}
	told := make(chan string, 4)
	s.onNotification = func(q *query) { told <- q.raw }
	h := build(t, []Server{s.server(scannedBy(t, scan.Block))})
	c := h.legacy("/mcp/s", "uid:1000", elicits)
	r := c.begin("tools/call", `{"name":"t"}`)
	r.end()
	if len(r.before) != 0 {
		t.Errorf("it got through: %s", r.before)
	}
	contains(t, "question", <-asked, `"result":{"action":"decline"}`)
	equal(t, "refused", code(c.post(notification("notifications/vendor", `{"x":"canary-4711"}`)).next()), "1403")
	c.notify("notifications/vendor", `{"x":"fine"}`)
	for {
		if m := <-told; strings.Contains(m, "notifications/vendor") {
			contains(t, "the first that got through", m, "fine")
			break
		}
	}
}

// A header that repeats a parameter is cut like it, and stays equal to it.
func TestScanCutsHeadersLikeTheirParameters(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	s.setList("tools/list", `{"tools":[{"name":"t","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"}}}}]}`)
	h := build(t, []Server{s.server(scannedBy(t, scan.Redact))})
	m := h.modern("/mcp/s", "uid:1000")
	end := m.tool("t", `"a":"x canary-4711"`, "Mcp-Param-A", "x canary-4711", "Mcp-Param-Other", "canary-4712")
	if field(end, "result") == "" {
		t.Fatal(end)
	}
	q := s.last("tools/call")
	equal(t, "body", field(q.raw, "params", "arguments", "a"), `"x [redacted:canary]"`)
	equal(t, "header", join(q.header["Mcp-Param-A"]), "x [redacted:canary]")
	equal(t, "an unknown header", join(q.header["Mcp-Param-Other"]), "[redacted:canary]")
}

// Content rules do not change a list, because the names in it must be callable.
func TestScanLeavesLists(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	s.setList("tools/list", `{"tools":[{"name":"canary-1"}]}`)
	s.serve = func(q *query) { q.result(`{"of":"a call"}`) } // the default answer repeats the name, and is blocked
	h := build(t, []Server{s.server(scannedBy(t, scan.Block))})
	m := h.modern("/mcp/s", "uid:1000")
	equal(t, "list", join(names(m.call("tools/list", `{}`), "tools", "name")), "canary-1")
	equal(t, "the answer", field(m.tool("canary-1", ""), "result", "of"), `"a call"`)
	equal(t, "the name", s.last("tools/call").name(), "canary-1")
}
