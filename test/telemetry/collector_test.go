//go:build interop

package telemetry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// attribute is one attribute in the JSON of OTLP.
type attribute struct {
	Key   string
	Value struct{ StringValue, IntValue string }
}

// span is one span in the JSON of OTLP.
type span struct {
	TraceID, SpanID, ParentSpanID, TraceState, Name string
	Kind                                            int
	StartTimeUnixNano                               string
	Attributes                                      []attribute
}

func (s span) get(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.StringValue + a.Value.IntValue
		}
	}
	return ""
}

// backend receives the data that the collector forwards.
type backend struct {
	mu    sync.Mutex
	text  bytes.Buffer
	spans []span
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var got struct {
		ResourceSpans []struct{ ScopeSpans []struct{ Spans []span } }
	}
	if err != nil || json.Unmarshal(body, &got) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.Write(body)
	for _, r := range got.ResourceSpans {
		for _, s := range r.ScopeSpans {
			b.spans = append(b.spans, s.Spans...)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, "{}")
}

func (b *backend) said() (string, []span) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String(), slices.Clone(b.spans)
}

// until waits until the backend has what ok asks for: the collector forwards what it has received
// in the background. The caller checks the data.
func (b *backend) until(ok func(text string, spans []span) bool) (string, []span) {
	doortest.Becomes(20*time.Second, func() bool { return ok(b.said()) })
	return b.said()
}

// count counts the spans of a trace with a name.
func count(spans []span, trace, name string) (n int) {
	for _, s := range spans {
		if s.TraceID == trace && s.Name == name {
			n++
		}
	}
	return n
}

// collectorConfig receives OTLP over HTTP on one address and forwards it as JSON.
const collectorConfig = `
receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {otlp_http: {endpoint: %q, encoding: json, compression: none}}
service:
  telemetry: {metrics: {level: none}, logs: {level: warn}}
  pipelines:
    traces: {receivers: [otlp], exporters: [otlp_http]}
    metrics: {receivers: [otlp], exporters: [otlp_http]}
`

// startCollector runs the OpenTelemetry collector and returns its address.
func startCollector(t *testing.T, to *backend) string {
	t.Helper()
	bin := os.Getenv("COLLECTOR_BIN")
	if bin == "" {
		t.Fatal("COLLECTOR_BIN names no collector: run make telemetry")
	}
	sink := httptest.NewServer(to)
	t.Cleanup(sink.Close)
	addr := fmt.Sprintf("127.0.0.1:%d", doortest.FreePort(t))
	file := filepath.Join(t.TempDir(), "collector.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, collectorConfig, addr, sink.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.Command(bin, "--config", "file:"+file)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("the collector:\n%s", said.String())
		}
	})
	if !doortest.Becomes(time.Minute, func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	}) {
		t.Fatalf("the collector does not listen: %s", said.String())
	}
	return "http://" + addr
}

const (
	trace1, parent1 = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	trace2, parent2 = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
)

// TestARealCollectorGetsTheSpansOfACall: the collector gets spans of the front, the
// decision, the server and the operator in the client's own trace, whether the trace context
// came in _meta or in the headers. The server gets its span as the parent. No argument,
// result, unknown tool name or secret is sent.
func TestARealCollectorGetsTheSpansOfACall(t *testing.T) {
	t.Parallel()
	b, s := &backend{}, serve(t)
	d := doortest.Start(t, config(s.url)+"telemetry: {otlp: "+startCollector(t, b)+", headers: {X-Key: \"${env:COLLECTOR_KEY}\"}}\n",
		doortest.Options{Env: []string{"COLLECTOR_KEY=secret-of-collector"}})
	c := client{t, d.MCP("web")}
	c.call("echo", `"canary":"argument-canary"`, `"traceparent":"00-`+trace1+`-`+parent1+`-00","tracestate":"vendor=v1"`, nil)
	c.call("echo", ``, ``, http.Header{"Traceparent": {"00-" + trace2 + "-" + parent2 + "-01"}})
	c.call("held", ``, `"traceparent":"00-`+trace2+`-`+parent1+`-01"`, nil)
	c.call("made-up-name-canary", ``, ``, nil)
	if status := d.Stop(); status != 0 {
		t.Errorf("the daemon ended with %d", status)
	}
	text, spans := b.until(func(text string, spans []span) bool {
		return strings.Contains(text, `"name":"doorward_approval_wait_seconds"`) && count(spans, trace1, "tools/call echo") == 1 &&
			count(spans, trace2, "tools/call") == 2 && count(spans, trace2, "tools/call echo") == 1 && count(spans, trace2, "approval") == 1
	})
	for _, canary := range []string{"argument-canary", "made-up-name-canary", "secret-of-collector", "result-canary"} {
		if strings.Contains(text, canary) {
			t.Errorf("%s was sent to the collector", canary)
		}
	}
	for _, metric := range []string{"doorward_calls_total", "doorward_call_duration_seconds", "doorward_audit_seq", "doorward_approval_wait_seconds"} {
		if !strings.Contains(text, `"name":"`+metric+`"`) {
			t.Errorf("the metric %s was not sent", metric)
		}
	}
	find := func(trace, parent, name string) span {
		t.Helper()
		for _, s := range spans {
			if s.TraceID == trace && s.Name == name && (parent == "" || s.ParentSpanID == parent) {
				return s
			}
		}
		t.Fatalf("no span %s of %s below %s: %+v", name, trace, parent, spans)
		return span{}
	}
	met := s.metas(t)
	for i, from := range []struct{ trace, parent, state string }{{trace1, parent1, "vendor=v1"}, {trace2, parent2, ""}} {
		door := find(from.trace, from.parent, "tools/call")
		if door.Kind != 2 || !strings.HasPrefix(door.get("doorward.principal"), "loopback:uid=") || door.get("doorward.result") != "ok" {
			t.Errorf("the front: %+v", door)
		}
		if decision := find(from.trace, door.SpanID, "decision"); decision.get("doorward.audit.ref") == "" {
			t.Errorf("the decision: %+v", decision)
		}
		call := find(from.trace, door.SpanID, "tools/call echo")
		if call.Kind != 3 || call.get("gen_ai.tool.name") != "echo" || call.get("doorward.server") != "web" || call.TraceState != from.state {
			t.Errorf("the call: %+v", call)
		}
		if want := "00-" + from.trace + "-" + call.SpanID + "-01"; met[i]["traceparent"] != want || fmt.Sprint(met[i]["tracestate"]) != or(from.state) {
			t.Errorf("the server was told %v, want %s", met[i], want)
		}
	}
	held := find(trace2, find(trace2, parent1, "tools/call").SpanID, "approval")
	if held.get("doorward.result") != "denied" || held.get("gen_ai.tool.name") != "held" {
		t.Errorf("the wait for the operator: %+v", held)
	}
}

// or returns the printed form of a member that may be absent.
func or(state string) string {
	if state == "" {
		return "<nil>"
	}
	return state
}

// TestWithoutACollectorTheTraceContextIsUnchanged: the server gets the client's trace
// context as it was sent.
func TestWithoutACollectorTheTraceContextIsUnchanged(t *testing.T) {
	t.Parallel()
	s := serve(t)
	d := doortest.Start(t, config(s.url), doortest.Options{Env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"}})
	client{t, d.MCP("web")}.call("echo", ``, `"traceparent":"00-`+trace1+`-`+parent1+`-00","tracestate":"vendor=v1","baggage":"a=b"`, nil)
	got := s.metas(t)[0]
	if got["traceparent"] != "00-"+trace1+"-"+parent1+"-00" || got["tracestate"] != "vendor=v1" || got["baggage"] != "a=b" {
		t.Errorf("the server was told %v", got)
	}
}

// metas are the `_meta` that the server received, one for each call.
func (s *server) metas(t *testing.T) (all []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var meta map[string]any
		if err := json.Unmarshal([]byte(line), &meta); err != nil {
			t.Fatal(err)
		}
		all = append(all, meta)
	}
	return all
}
