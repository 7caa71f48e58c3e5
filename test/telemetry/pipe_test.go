//go:build interop

package telemetry

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// pipeMode makes this test binary an MCP server on stdio that appends each received line to
// a file. Its value is the file.
const pipeMode = "TEST_PIPE_SERVER"

func TestMain(m *testing.M) {
	if file := os.Getenv(pipeMode); file != "" {
		pipeServer(file)
		return
	}
	os.Exit(m.Run())
}

// pipeServer offers one tool and one resource, and declares that it reports changes.
func pipeServer(file string) {
	kept, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	answers := map[string]string{
		"initialize": `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}},"serverInfo":{"name":"pipe","version":"1"}}`,
		"tools/list": `{"tools":[{"name":"echo","description":"repeats","inputSchema":{"type":"object"}}]}`, "resources/list": `{"resources":[{"uri":"x://a","name":"a"}]}`,
		"resources/subscribe": `{}`, "resources/unsubscribe": `{}`, "ping": `{}`, "prompts/list": `{"prompts":[]}`, "resources/templates/list": `{"resourceTemplates":[]}`,
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Fprintln(kept, in.Text())
		var r struct {
			ID     json.RawMessage
			Method string
		}
		if json.Unmarshal(in.Bytes(), &r) != nil || r.ID == nil {
			continue
		}
		if result, ok := answers[r.Method]; ok {
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, result)
			continue
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", r.ID)
	}
}

// parentOf is the traceparent of the last message of a method in the file of a pipe server.
func parentOf(file, method string) (parent string) {
	b, _ := os.ReadFile(file)
	for line := range strings.Lines(string(b)) {
		var m struct {
			Method string
			Params struct {
				Meta struct{ Traceparent string } `json:"_meta"`
			}
		}
		if json.Unmarshal([]byte(line), &m) == nil && m.Method == method {
			parent = m.Params.Meta.Traceparent
		}
	}
	return parent
}

// traceOf is a trace context that is unique for n, as a member of _meta.
func traceOf(n int) (trace, meta string) {
	trace = fmt.Sprintf("4bf92f3577b34da6a3ce929d0e0e%04d", n)
	return trace, `"traceparent":"00-` + trace + `-` + parent1 + `-01"`
}

// listen opens a modern subscription and returns once it is acknowledged.
func (c client) listen(meta string) (end func()) {
	c.t.Helper()
	r := c.request("subscriptions/listen", "", `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["x://a"]},`, meta, nil)
	resp, err := doortest.Client().Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		if strings.Contains(in.Text(), "notifications/subscriptions/acknowledged") {
			return func() { resp.Body.Close() }
		}
	}
	c.t.Fatal("the subscription is not acknowledged")
	return nil
}

// notify sends a notification.
func (c client) notify(method, meta string) {
	c.t.Helper()
	r := c.request(method, "", "", meta, nil)
	text, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(strings.Replace(string(text), `"id":1,`, ``, 1)))
	r.ContentLength = -1
	resp, err := doortest.Client().Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		c.t.Errorf("%s: %s", method, resp.Status)
	}
}

// TestOtherMessagesThanCallsAreTraced: a subscription, a notification and a list that the
// daemon answers itself have their spans in the client's own trace, with the number of the
// decision. A message to the server names its span as the parent. Subscriptions and
// notifications are not counted as requests.
func TestOtherMessagesThanCallsAreTraced(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, file := &backend{}, filepath.Join(t.TempDir(), "lines")
	d := doortest.Start(t, "mcpServers:\n  pipe: {command: "+self+", env: {"+pipeMode+": "+file+"}, doorward: {sandbox: \"off\"}}\ntelemetry: {otlp: "+startCollector(t, b)+"}\n", doortest.Options{})
	c, all := client{t, d.MCP("pipe")}, client{t, d.MCP("")}
	listenTrace, meta := traceOf(1)
	end := c.listen(meta)
	var subscribed string
	doortest.Becomes(20*time.Second, func() bool { subscribed = parentOf(file, "resources/subscribe"); return subscribed != "" })
	end()
	noticeTrace, meta := traceOf(2)
	c.notify("notifications/of-our-own", meta)
	var noticed string
	doortest.Becomes(20*time.Second, func() bool { noticed = parentOf(file, "notifications/of-our-own"); return noticed != "" })
	_, meta = traceOf(3)
	doortest.Until(t, 20*time.Second, "the tools of the server", func() bool { // which may take a moment to start
		return strings.Contains(all.post("tools/list", "", "", meta, nil), `"pipe__echo"`)
	})
	var knownTrace string
	for n := range 4 {
		knownTrace, meta = traceOf(10 + n)
		if got := all.post("tools/list", "", "", meta, nil); !strings.Contains(got, `"pipe__echo"`) {
			t.Errorf("the list: %s", got)
		}
	}
	metrics := requestsCounted(t, d)
	d.Stop()
	_, spans := b.until(func(_ string, spans []span) bool {
		return count(spans, listenTrace, "subscriptions/listen") == 2 && count(spans, noticeTrace, "other") == 2 && count(spans, knownTrace, "known list") == 1
	})
	find := func(trace, parent, name string) span {
		t.Helper()
		for _, s := range spans {
			if s.TraceID == trace && s.Name == name && s.ParentSpanID == parent {
				return s
			}
		}
		t.Fatalf("no span %s of %s below %s: %+v", name, trace, parent, spans)
		return span{}
	}
	for _, way := range []struct{ trace, front, below, server, told string }{
		{listenTrace, "subscriptions/listen", "subscriptions/listen", "pipe", subscribed},
		{noticeTrace, "other", "other", "pipe", noticed},
		{knownTrace, "tools/list", "known list", "", ""},
	} {
		front := find(way.trace, parent1, way.front)
		if front.Kind != 2 || !strings.HasPrefix(front.get("doorward.principal"), "loopback:uid=") {
			t.Errorf("the front: %+v", front)
		}
		if decision := find(way.trace, front.SpanID, "decision"); decision.get("doorward.audit.ref") == "" || decision.get("doorward.result") != "ok" {
			t.Errorf("the decision: %+v", decision)
		}
		below := find(way.trace, front.SpanID, way.below)
		if below.get("doorward.server") != way.server || below.get("doorward.result") != "ok" {
			t.Errorf("below the front: %+v", below)
		}
		if want := "00-" + way.trace + "-" + below.SpanID + "-01"; way.told != "" && way.told != want || way.server != "" && way.told == "" {
			t.Errorf("the server was told %q, want %s", way.told, want)
		}
	}
	for _, line := range metrics {
		if !strings.Contains(line, `method="tools/list"`) {
			t.Errorf("it was counted: %s", line)
		}
	}
}

// requestsCounted are the counts of requests other than calls.
func requestsCounted(t *testing.T, d *doortest.Daemon) (lines []string) {
	t.Helper()
	for line := range strings.Lines(metricsText(t, d)) {
		if strings.HasPrefix(line, "doorward_requests_total{") {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestTheSpanOfARequestBeginsWhenItArrives: the span begins before the body is read, so it
// includes authentication.
func TestTheSpanOfARequestBeginsWhenItArrives(t *testing.T) {
	t.Parallel()
	b, s := &backend{}, serve(t)
	d := doortest.Start(t, config(s.url)+"telemetry: {otlp: "+startCollector(t, b)+"}\n", doortest.Options{})
	trace, meta := traceOf(20)
	r := client{t, d.MCP("web")}.request("tools/call", "echo", `"name":"echo","arguments":{},`, meta, nil)
	// The daemon asks for the body after it has authenticated the caller.
	r.Header.Set("Expect", "100-continue")
	var asked time.Time
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got100Continue: func() { asked = time.Now() }}))
	via := &http.Transport{ExpectContinueTimeout: time.Minute}
	defer via.CloseIdleConnections()
	resp, err := via.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if asked.IsZero() {
		t.Fatal("the daemon did not ask for the body: this test shows nothing")
	}
	d.Stop()
	_, spans := b.until(func(_ string, spans []span) bool { return count(spans, trace, "tools/call") > 0 })
	for _, s := range spans {
		if s.TraceID != trace || s.Name != "tools/call" || s.Kind != 2 {
			continue
		}
		began, err := strconv.ParseInt(s.StartTimeUnixNano, 10, 64)
		if err != nil || began > asked.UnixNano() {
			t.Errorf("the span begins at %s, and the daemon asked for the body at %d (%v)", s.StartTimeUnixNano, asked.UnixNano(), err)
		}
		return
	}
	t.Errorf("no span of the front: %+v", spans)
}
