package telemetry

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Times and bounds of sending.
const (
	sendTime     = 10 * time.Second // one attempt
	retryTime    = 30 * time.Second // all attempts together
	firstRetry   = time.Second
	lastRetry    = 5 * time.Second
	metricsEvery = 15 * time.Second
	mostSpans    = 4096 // that wait to be sent
)

// sender sends spans and metrics to a collector.
type sender struct {
	log     *slog.Logger
	spans   *sdktrace.TracerProvider
	metrics *metric.MeterProvider

	ended          atomic.Uint64 // spans
	traces, series outcome
}

// outcome counts the spans or exports of one signal that were sent or failed.
type outcome struct {
	sent, failed atomic.Uint64
	failing      atomic.Bool
}

// newSender starts the exporters. They connect when there is something to send. All options
// are set explicitly, so that no environment variable changes the destination.
func newSender(o Options) (*sender, error) {
	s := &sender{log: o.Log}
	client := *o.OTLP.Client
	client.Timeout = sendTime
	base, ctx := strings.TrimSuffix(o.OTLP.URL, "/"), context.Background()
	spans, err1 := otlptracehttp.New(ctx, otlptracehttp.WithTLSClientConfig(nil), otlptracehttp.WithEndpointURL(base+"/v1/traces"), otlptracehttp.WithHeaders(o.OTLP.Headers),
		otlptracehttp.WithHTTPClient(&client), otlptracehttp.WithCompression(otlptracehttp.GzipCompression),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: firstRetry, MaxInterval: lastRetry, MaxElapsedTime: retryTime}))
	metrics, err2 := otlpmetrichttp.New(ctx, otlpmetrichttp.WithTLSClientConfig(nil), otlpmetrichttp.WithEndpointURL(base+"/v1/metrics"), otlpmetrichttp.WithHeaders(o.OTLP.Headers),
		otlpmetrichttp.WithHTTPClient(&client), otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression),
		otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{Enabled: true, InitialInterval: firstRetry, MaxInterval: lastRetry, MaxElapsedTime: retryTime}))
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("telemetry.otlp: %w", err)
	}
	res := resource.NewSchemaless(attribute.String("service.name", "doorward"), attribute.String("service.version", o.Version), attribute.String("service.instance.id", rand.Text()))
	batch := sdktrace.NewBatchSpanProcessor(spanExporter{spans, s}, sdktrace.WithMaxQueueSize(mostSpans), sdktrace.WithExportTimeout(retryTime))
	s.spans = sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithSpanProcessor(counted{batch, s}))
	s.metrics = metric.NewMeterProvider(metric.WithResource(res), metric.WithReader(metric.NewPeriodicReader(metricExporter{metrics, s},
		metric.WithInterval(metricsEvery), metric.WithTimeout(retryTime), metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(o.OTLP.Gather))))))
	return s, nil
}

func (s *sender) close(ctx context.Context) {
	if err := errors.Join(s.spans.Shutdown(ctx), s.metrics.Shutdown(ctx)); err != nil {
		s.log.Warn("not all telemetry was sent", "err", err)
	}
}

// counted counts the ended spans. Spans that were neither sent nor failed are waiting, or
// were dropped because too many waited.
type counted struct {
	sdktrace.SpanProcessor
	s *sender
}

// OnEnd implements sdktrace.SpanProcessor.
func (c counted) OnEnd(span sdktrace.ReadOnlySpan) {
	c.s.ended.Add(1)
	c.SpanProcessor.OnEnd(span)
}

// spanExporter counts sent spans and logs failures itself, because the SDK would report them
// to a handler of the whole process.
type spanExporter struct {
	sdktrace.SpanExporter
	s *sender
}

// ExportSpans implements sdktrace.SpanExporter.
func (e spanExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	e.s.note(&e.s.traces, "traces", len(spans), e.SpanExporter.ExportSpans(ctx, spans))
	return nil
}

// metricExporter does the same for metrics.
type metricExporter struct {
	metric.Exporter
	s *sender
}

// Export implements metric.Exporter.
func (e metricExporter) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	e.s.note(&e.s.series, "metrics", 1, e.Exporter.Export(ctx, m))
	return nil
}

// note counts an attempt, and logs when sending begins to fail and when it works again.
func (s *sender) note(o *outcome, signal string, n int, err error) {
	switch {
	case err != nil:
		o.failed.Add(uint64(n))
		if !o.failing.Swap(true) {
			why, _, _ := strings.Cut(err.Error(), "body:") // the collector's answer is not logged
			s.log.Warn("telemetry cannot be sent; further failures are counted in /metrics", "signal", signal, "err", why)
		}
		return
	case o.failing.Swap(false):
		s.log.Info("telemetry is sent again", "signal", signal)
	}
	o.sent.Add(uint64(n))
}

var (
	metricSpans   = prometheus.NewDesc("doorward_telemetry_spans_total", "Spans for the collector: ended, and of these sent and failed.", []string{"result"}, nil)
	metricExports = prometheus.NewDesc("doorward_telemetry_exports_total", "Exports of all metrics to the collector.", []string{"result"}, nil)
)

func (s *sender) collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n *atomic.Uint64, result string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n.Load()), result)
	}
	count(metricSpans, &s.ended, "ended")
	count(metricSpans, &s.traces.sent, "sent")
	count(metricSpans, &s.traces.failed, "failed")
	count(metricExports, &s.series.sent, "sent")
	count(metricExports, &s.series.failed, "failed")
}
