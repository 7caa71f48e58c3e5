package telemetry_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/doorward/doorward/internal/daemon/telemetry"
	"github.com/doorward/doorward/internal/relay"
	"github.com/doorward/doorward/test/doortest"
)

// samples are the samples of a family by their labels, in the order of label names.
func samples(t *testing.T, c prometheus.Collector, family string) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, f := range all {
		if f.GetName() != family {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			out[strings.Join(labels, ",")] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// open is telemetry for servers whose tools begin with "tool".
func open(t testing.TB, c *telemetry.Collector, log *slog.Logger) *telemetry.Telemetry {
	t.Helper()
	tel, err := telemetry.New(telemetry.Options{Knows: func(_, tool string) bool { return strings.HasPrefix(tool, "tool") }, OTLP: c, Version: "1", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return tel
}

// pass takes one stage of a request from its beginning to its end.
func pass(t *telemetry.Telemetry, m relay.Mark, result string) {
	_, m = t.Begin(context.Background(), m)
	t.End(m, result)
}

func call(stage relay.Stage, tool string) relay.Mark {
	return relay.Mark{Stage: stage, Server: "s", Method: "tools/call", Name: tool}
}

// A call counts once for all its stages, under the result that ended it.
func TestACallCountsOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stages string
		want   string
	}{
		{"decision=ok server=ok", "ok"},
		{"decision=ok server=timeout", "timeout"},
		{"decision=denied", "denied"},
		{"decision=limited", "limited"},
		{"decision=held approval=ok decision=ok server=ok", "ok"},
		{"decision=held approval=denied", "denied"},
		{"decision=held approval=pending", "pending"},
		{"decision=ok server=a word of the future", "other"},
	} {
		tel := open(t, nil, quiet())
		stages := map[string]relay.Stage{"decision": relay.StageDecision, "approval": relay.StageApproval, "server": relay.StageServer}
		for _, part := range strings.Split(strings.ReplaceAll(c.stages, "a word of the future", "future"), " ") {
			name, result, _ := strings.Cut(part, "=")
			pass(tel, call(stages[name], "tool"), result)
		}
		got := samples(t, tel, "doorward_calls_total")
		if len(got) != 1 || got["result="+c.want+",server=s,tool=tool"] != 1 {
			t.Errorf("%s: %v", c.stages, got)
		}
		if n := samples(t, tel, "doorward_call_duration_seconds")["server=s,tool=tool"]; (n == 1) != strings.Contains(c.stages, "server") {
			t.Errorf("%s: %v latencies", c.stages, n)
		}
	}
}

// Series are bounded for any names that callers send: a name that the server is not known
// to have is no label, and every call is counted.
func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	tel := open(t, nil, quiet())
	const callers, each = 8, 1000
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for j := range each {
				pass(tel, call(relay.StageServer, fmt.Sprintf("made-up-%d-%d", i, j)), "invalid")
				pass(tel, call(relay.StageServer, fmt.Sprintf("tool%d", i*each+j)), "ok")
				pass(tel, relay.Mark{Stage: relay.StageServer, Server: "s", Method: fmt.Sprintf("made/up%d", j)}, "error")
			}
		})
	}
	all.Wait()
	total := 0.0
	got := samples(t, tel, "doorward_calls_total")
	for labels, n := range got {
		total += n
		if strings.Contains(labels, "made-up") {
			t.Fatalf("%s is a label", labels)
		}
	}
	if len(got) > 2010 || total != 2*callers*each {
		t.Errorf("%d series, %v calls", len(got), total)
	}
	if n := got["result=invalid,server=s,tool=other"]; n != callers*each {
		t.Errorf("%v unknown tools: %v", n, len(got))
	}
	if got := samples(t, tel, "doorward_requests_total"); len(got) != 1 || got["method=other,result=error,server=s"] != callers*each {
		t.Errorf("methods: %v", got)
	}
}

// A tool of a built-in server is known when the mark of its answer says so.
func TestAToolOfABuiltInServerIsKnownByItsAnswer(t *testing.T) {
	t.Parallel()
	tel := open(t, nil, quiet())
	m := call(relay.StageServer, "send")
	pass(tel, m, "error")
	m.Known = true
	pass(tel, m, "ok")
	got := samples(t, tel, "doorward_calls_total")
	if got["result=error,server=s,tool=other"] != 1 || got["result=ok,server=s,tool=send"] != 1 {
		t.Error(got)
	}
}

// received is what a collector got.
type received struct {
	mu   sync.Mutex
	path []string
	auth []string
	body bytes.Buffer
}

func (r *received) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.path = append(r.path, req.URL.Path)
	r.auth = append(r.auth, req.Header.Get("Authorization"))
	if z, err := gzip.NewReader(req.Body); err == nil {
		io.Copy(&r.body, z)
	}
}

func collectorAt(url string) *telemetry.Collector {
	return &telemetry.Collector{URL: url, Headers: map[string]string{"Authorization": "Bearer secret-of-collector"}, Client: doortest.Client(), Gather: prometheus.NewRegistry()}
}

// The environment variables of OpenTelemetry exporters and proxies neither redirect the
// exporter nor change its header, nor keep anything from being sent.
func TestNothingInTheEnvironmentLeadsElsewhere(t *testing.T) {
	var here, there received
	good, bad := httptest.NewServer(&here), httptest.NewServer(&there)
	defer good.Close()
	defer bad.Close()
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": bad.URL, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": bad.URL, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": bad.URL,
		"OTEL_EXPORTER_OTLP_HEADERS": "Authorization=stolen", "OTEL_EXPORTER_OTLP_COMPRESSION": "none", "OTEL_TRACES_SAMPLER": "always_off",
		"OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere.pem", "HTTP_PROXY": bad.URL, "OTEL_EXPORTER_OTLP_INSECURE": "false",
	} {
		t.Setenv(name, value)
	}
	tel := open(t, collectorAt(good.URL+"/base/"), quiet())
	pass(tel, call(relay.StageServer, "tool"), "ok")
	tel.Close()
	if len(there.path) != 0 || !strings.Contains(strings.Join(here.path, " "), "/base/v1/traces") {
		t.Errorf("sent to %q, and elsewhere to %q", here.path, there.path)
	}
	if len(here.auth) == 0 || here.auth[0] != "Bearer secret-of-collector" || !strings.Contains(here.body.String(), "tools/call tool") {
		t.Errorf("as %q: %q", here.auth, here.body.String())
	}
}

// A collector that never answers, or is not there, delays neither requests nor Close, and
// shows in the count of spans.
func TestACollectorThatIsGoneDelaysNothing(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	var said written // a sender may log after Close gave up on it
	for _, url := range []string{"http://" + silent.Addr().String(), "http://127.0.0.1:1"} {
		tel := open(t, collectorAt(url), slog.New(slog.NewTextHandler(&said, nil)))
		start := time.Now()
		const many = 5000
		for range many {
			pass(tel, call(relay.StageServer, "tool"), "ok")
		}
		if took := time.Since(start); took > 20*time.Second { // a stage that waited would take seconds itself
			t.Errorf("%d stages took %v", many, took)
		}
		start = time.Now()
		tel.Close()
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("the end took %v", took)
		}
		got := samples(t, tel, "doorward_telemetry_spans_total")
		if got["result=ended"] != many || got["result=sent"] != 0 {
			t.Errorf("%v", got)
		}
	}
	if strings.Contains(said.String(), "secret-of-collector") {
		t.Errorf("the log has the header: %s", said.String())
	}
}

// written is a buffer for several goroutines.
type written struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}
