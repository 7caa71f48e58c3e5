// Package telemetry measures requests: counters and latencies for /metrics, and if a
// collector is configured, spans and the same metrics over OTLP/HTTP.
//
// Invariant: metrics and spans consist of constants, numbers, times, and the names of
// servers, known tools and principals. Params, results, tokens and headers never reach this
// package. The number of series is bounded, whatever callers send. A slow or unreachable
// collector delays no request: spans that cannot be sent are dropped and counted.
//
// Limit: a caller chooses the trace of its request (W3C Trace Context). It cannot prevent the
// spans of its request.
package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/doorward/doorward/internal/relay"
)

// Options configures a Telemetry.
type Options struct {
	// Knows reports whether a server is known to have a tool: only such a name becomes a
	// label.
	Knows func(server, tool string) bool
	// OTLP is the collector; nil: nothing is sent.
	OTLP    *Collector
	Version string // of Doorward
	Log     *slog.Logger
}

// Collector is the receiver of spans and metrics.
type Collector struct {
	URL     string              // the base, to which /v1/traces and /v1/metrics are appended
	Headers map[string]string   // for each request
	Client  *http.Client        // from the package that dials
	Gather  prometheus.Gatherer // the metrics to send
}

// Telemetry implements relay.Observer and prometheus.Collector.
type Telemetry struct {
	calls  calls
	waits  *prometheus.HistogramVec
	sender *sender      // nil: there is no collector
	tracer trace.Tracer // nil: there is no collector
}

// New starts the measurements. An error concerns only the collector: the Telemetry that is
// returned with it measures and does not send.
func New(o Options) (*Telemetry, error) {
	t := &Telemetry{calls: calls{knows: o.Knows}, waits: newWaits()}
	if o.OTLP == nil {
		return t, nil
	}
	s, err := newSender(o)
	if err != nil {
		return t, err
	}
	t.sender, t.tracer = s, s.spans.Tracer("github.com/doorward/doorward")
	return t, nil
}

// Traces reports whether there is a collector for spans.
func (t *Telemetry) Traces() bool { return t.tracer != nil }

// closeTime bounds the sending in Close.
const closeTime = 2 * time.Second

// Close sends the remaining spans, within two seconds.
func (t *Telemetry) Close() {
	if t.sender == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	t.sender.close(ctx)
}

// Begin implements relay.Observer.
func (t *Telemetry) Begin(ctx context.Context, m relay.Mark) (context.Context, relay.Mark) {
	if m.Stage != relay.StageDecision { // the duration of a decision is not measured
		m.Start = time.Now()
	}
	if t.tracer != nil {
		return t.span(ctx, m)
	}
	return ctx, m
}

// End implements relay.Observer.
func (t *Telemetry) End(m relay.Mark, result string) {
	if t.tracer != nil {
		t.endSpan(m, result)
	}
	switch {
	case m.Uncounted:
	case m.Stage == relay.StageServer:
		t.calls.answered(m, result, time.Since(m.Start))
	case m.Stage == relay.StageApproval:
		t.waits.WithLabelValues(m.Server, wordOf(result)).Observe(time.Since(m.Start).Seconds())
		if result != "ok" {
			t.calls.refused(m, result)
		}
	case result != "ok" && result != "held":
		t.calls.refused(m, result)
	}
}

// Describe sends nothing: the collector is unchecked, because its series depend on the
// requests.
func (t *Telemetry) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (t *Telemetry) Collect(ch chan<- prometheus.Metric) {
	t.calls.collect(ch)
	t.waits.Collect(ch)
	if t.sender != nil {
		t.sender.collect(ch)
	}
}
