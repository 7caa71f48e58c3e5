package telemetry

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/doorward/doorward/internal/relay"
)

// other is the label of a tool that its server is not known to have, of a method that is not
// in the protocol, and of a result that is not listed.
const other = "other"

// mostSeries is the largest number of pairs of server and tool, and of server and method.
// Further pairs count as other.
const mostSeries = 2000

// results lists the labels for the end of a request.
var results = [...]string{"ok", "error", "invalid", "failed", "timeout", "starting", "cancelled", "busy", "sign-in", "withheld", "blocked",
	"denied", "limited", "unavailable", "pending", other}

func resultIndex(word string) int {
	if i := slices.Index(results[:], word); i >= 0 {
		return i
	}
	return len(results) - 1
}

// wordOf returns the label of a result.
func wordOf(result string) string { return results[resultIndex(result)] }

// methods is the set of methods with a label of their own.
var methods = map[string]bool{
	"initialize": true, "ping": true, "server/discover": true, "tools/list": true, "tools/call": true,
	"resources/list": true, "resources/templates/list": true, "resources/read": true, "resources/subscribe": true, "resources/unsubscribe": true,
	"prompts/list": true, "prompts/get": true, "completion/complete": true, "logging/setLevel": true, "subscriptions/listen": true,
	"tasks/get": true, "tasks/list": true, "tasks/result": true, "tasks/cancel": true, "tasks/update": true,
}

func methodOf(method string) string {
	if methods[method] {
		return method
	}
	return other
}

// toolCall is the method whose requests are counted by tool.
const toolCall = "tools/call"

// key identifies a series: a tool of a server, or a method for all other requests.
type key struct {
	server, name string
	tool         bool
}

// series holds the counts and latencies of one key.
type series struct {
	key    key
	counts [len(results)]atomic.Uint64
	took   prometheus.Histogram
}

// seconds holds the bounds of the latency buckets.
var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}

// calls counts requests. A request takes no lock: for a new key, the map is replaced as a
// whole.
type calls struct {
	knows func(server, tool string) bool
	now   atomic.Pointer[map[key]*series]
	mu    sync.Mutex // held while now is replaced
}

// answered counts a request that its server answered or failed.
func (c *calls) answered(m relay.Mark, result string, took time.Duration) {
	s := c.of(m)
	s.counts[resultIndex(result)].Add(1)
	s.took.Observe(took.Seconds())
}

// refused counts a request that did not reach its server.
func (c *calls) refused(m relay.Mark, result string) { c.of(m).counts[resultIndex(result)].Add(1) }

// of returns the series of a request.
func (c *calls) of(m relay.Mark) *series {
	k := key{server: m.Server, name: m.Name, tool: m.Method == toolCall}
	if !k.tool {
		k.name = methodOf(m.Method)
	}
	if s := c.known(k); s != nil {
		return s
	}
	if k.tool && !m.Known && !c.knows(k.server, k.name) {
		k.name = other
	}
	return c.add(k)
}

func (c *calls) known(k key) *series {
	if all := c.now.Load(); all != nil {
		return (*all)[k]
	}
	return nil
}

// add makes the series of a key.
func (c *calls) add(k key) *series {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all map[key]*series
	if now := c.now.Load(); now != nil {
		all = *now
	}
	if all[k] == nil && len(all) >= mostSeries {
		k = key{server: other, name: other, tool: k.tool}
	}
	if s := all[k]; s != nil {
		return s
	}
	next := make(map[key]*series, len(all)+1)
	maps.Copy(next, all)
	k.name = strings.Clone(k.name) // a copy, because it may be a part of the message
	s := &series{key: k, took: k.histogram()}
	next[k] = s
	c.now.Store(&next)
	return s
}

const (
	callsName    = "doorward_calls_total"
	requestsName = "doorward_requests_total"
)

var (
	metricCalls    = prometheus.NewDesc(callsName, "Calls of tools, by how they ended.", []string{"server", "tool", "result"}, nil)
	metricRequests = prometheus.NewDesc(requestsName, "Other requests for a server, by how they ended.", []string{"server", "method", "result"}, nil)
)

// histogram makes the latencies of a key.
func (k key) histogram() prometheus.Histogram {
	o := prometheus.HistogramOpts{Name: "doorward_request_duration_seconds", Help: "How long servers took for other requests.",
		ConstLabels: prometheus.Labels{"server": k.server, "method": k.name}, Buckets: seconds}
	if k.tool {
		o.Name, o.Help = "doorward_call_duration_seconds", "How long servers took for calls of tools, without the time that a person takes to approve."
		o.ConstLabels = prometheus.Labels{"server": k.server, "tool": k.name}
	}
	return prometheus.NewHistogram(o)
}

// collect sends the counts and latencies.
func (c *calls) collect(ch chan<- prometheus.Metric) {
	all := c.now.Load()
	if all == nil {
		return
	}
	for k, s := range *all {
		d := metricRequests
		if k.tool {
			d = metricCalls
		}
		for i := range s.counts {
			if n := s.counts[i].Load(); n > 0 {
				ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), k.server, k.name, results[i])
			}
		}
		s.took.Collect(ch)
	}
}

// newWaits makes the latencies of the operator's answers.
func newWaits() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "doorward_approval_wait_seconds",
		Help: "How long held calls waited for the operator, by what came of it.", Buckets: []float64{1, 5, 10, 30, 60, 120, 300, 900, 1800, 3600}},
		[]string{"server", "result"})
}
