package admin

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// InstructionMeasures holds the figures of instruction delivery since the start. The keys are
// constants.
type InstructionMeasures struct {
	StoreUp   bool // the documents are available, or none are configured
	Live      int  // sessions now
	Issued    int64
	Renewed   int64
	Ended     map[string]int64  // sessions, by reason
	Failures  map[string]int64  // refused tokens, by reason
	Delivered map[string]uint64 // protected texts, by kind
	Degraded  map[string]uint64 // generic texts in place of protected ones, by reason
	Canary    map[string]uint64 // marks found in outgoing messages, by action
	// Within is the number of deliveries that took at most so many seconds.
	Within map[float64]uint64
	Count  uint64
	Sum    float64 // seconds
}

var (
	metricGuideUp        = desc("instructions_store_up", "1 while the documents are available, or none are configured.")
	metricGuideSessions  = desc("instructions_sessions", "Live delivery sessions.")
	metricGuideIssued    = desc("instructions_sessions_total", "Delivery sessions that were created, and tokens that were renewed.", "result")
	metricGuideEnded     = desc("instructions_sessions_ended_total", "Delivery sessions that ended, by reason.", "reason")
	metricGuideFailures  = desc("instructions_token_failures_total", "Session tokens that were refused, by reason.", "reason")
	metricGuideDelivered = desc("instructions_delivered_total", "Protected texts that were delivered, by kind.", "kind")
	metricGuideDegraded  = desc("instructions_degraded_total", "Generic texts delivered in place of protected ones, by reason.", "reason")
	metricGuideCanary    = desc("instructions_canary_total", "Marks of delivered texts found in outgoing messages, by action.", "result")
	metricGuideLatency   = desc("instructions_delivery_seconds", "How long deliveries took.")
)

func (i *InstructionMeasures) collect(ch chan<- prometheus.Metric, gauge, count sample) {
	gauge(metricGuideUp, truth(i.StoreUp))
	gauge(metricGuideSessions, float64(i.Live))
	count(metricGuideIssued, float64(i.Issued), "issued")
	count(metricGuideIssued, float64(i.Renewed), "renewed")
	each(count, metricGuideEnded, i.Ended)
	each(count, metricGuideFailures, i.Failures)
	each(count, metricGuideDelivered, i.Delivered)
	each(count, metricGuideDegraded, i.Degraded)
	each(count, metricGuideCanary, i.Canary)
	ch <- prometheus.MustNewConstHistogram(metricGuideLatency, i.Count, i.Sum, i.Within)
}

// each sends one sample for each word, in sorted order.
func each[N int64 | uint64](count sample, d *prometheus.Desc, words map[string]N) {
	for _, w := range slices.Sorted(maps.Keys(words)) {
		count(d, float64(words[w]), w)
	}
}
