// Package telemetry tests the daemon with a real OpenTelemetry collector, and compares the
// dashboard with the exported metrics.
package telemetry

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/doorward/doorward/test/doortest"
)

// server is an MCP server of the official SDK that keeps the _meta of each call.
type server struct {
	url  string
	file string // one _meta a line
}

func serve(t *testing.T) *server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "metas")
	return &server{doortest.ServeSDK(t, "-metas", file), file}
}

// config is a daemon in front of that server. It holds calls of one tool for a second.
func config(url string) string {
	return `mcpServers:
  web:
    url: ` + url + `
    doorward: {allow_private: true, tools: {ask: [held]}}
approvals: {wait: 30s, expire: 1s}
`
}

// client calls tools in the modern era.
type client struct {
	t   *testing.T
	url string
}

// list lists the tools.
func (c client) list() string { return c.post("tools/list", "", "", "", nil) }

// call calls a tool. args and meta are members of JSON objects.
func (c client) call(tool, args, meta string, header http.Header) string {
	c.t.Helper()
	return c.post("tools/call", tool, `"name":"`+tool+`","arguments":{`+args+`},`, meta, header)
}

func (c client) post(method, name, params, meta string, header http.Header) string {
	c.t.Helper()
	r := c.request(method, name, params, meta, header)
	resp, err := doortest.Client().Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text)
}

// request is a message of the modern era.
func (c client) request(method, name, params, meta string, header http.Header) *http.Request {
	c.t.Helper()
	if meta != "" {
		meta = "," + meta
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}` + meta + `}}}`
	r, err := http.NewRequest(http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	maps.Copy(r.Header, header)
	for key, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name} {
		if value != "" {
			r.Header.Set(key, value)
		}
	}
	return r
}

var metricName = regexp.MustCompile(`doorward_[a-z_]+`)

// TestTheDashboardNamesExistingMetrics: each metric in a query of the dashboard is exported
// by a running daemon.
func TestTheDashboardNamesExistingMetrics(t *testing.T) {
	t.Parallel()
	d := doortest.Start(t, config(serve(t).url)+"agent: {enabled: true}\n", doortest.Options{})
	c := client{t, d.MCP("web")}
	c.list()
	c.call("echo", ``, ``, nil)
	c.call("held", ``, ``, nil)
	exported := scrape(t, d)
	raw, err := os.ReadFile(filepath.Join(doortest.ModuleRoot(t), "examples", "grafana", "doorward.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(raw, &board); err != nil {
		t.Fatal(err)
	}
	queries := 0
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			queries++
			names := metricName.FindAllString(target.Expr, -1)
			if len(names) == 0 {
				t.Errorf("%s: %q names no metric", p.Title, target.Expr)
			}
			for _, name := range names {
				if !exported[name] {
					t.Errorf("%s: there is no metric %s", p.Title, name)
				}
			}
		}
	}
	if queries < 10 {
		t.Errorf("%d queries", queries)
	}
}

// metricsText are the exported metrics of a daemon, read on its socket.
func metricsText(t *testing.T, d *doortest.Daemon) string {
	t.Helper()
	via := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.Socket)
	}}}
	defer via.CloseIdleConnections()
	resp, err := via.Get("http://localhost/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// scrape are the names of the metrics that a daemon exports.
func scrape(t *testing.T, d *doortest.Daemon) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	for line := range strings.Lines(metricsText(t, d)) {
		if name := metricName.FindString(line); !strings.HasPrefix(line, "#") && name != "" {
			all[name] = true
		}
	}
	return all
}
