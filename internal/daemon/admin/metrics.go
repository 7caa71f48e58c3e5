package admin

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/principal"
)

// Measures holds the figures of /metrics beside Status.
type Measures struct {
	// Messaging reports whether messaging is on. Agent is nil if its store does not answer.
	Messaging bool
	Agent     *AgentMeasures
	// Refused counts the refusals of the gate since the start, by the kind of rule.
	Refused map[string]uint64
	// Instructions is nil if there are no figures.
	Instructions *InstructionMeasures
}

// AgentMeasures holds the figures of messaging. The keys are constants.
type AgentMeasures struct {
	Accepted int64             // all deliveries that were ever accepted
	States   map[string]int64  // deliveries, by state
	Peers    map[string]int    // registered peers, by presence
	Waits    int               // calls that wait for mail now
	Sends    map[string]uint64 // calls of send since the start, by outcome
}

// NewRegistry returns the registry of a daemon, separate from the default one. No label is an
// id or the name of a caller or a peer; the number of series depends only on this file, the
// configured servers and the states.
func NewRegistry(status func() Status, measure func(context.Context) Measures) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(look{status, measure})
	return registry
}

// metrics serves GET /metrics in the formats of Prometheus.
func (o Options) metrics() handler {
	serve := promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{DisableCompression: true})
	return func(w http.ResponseWriter, r *http.Request, who *principal.Principal) {
		if !isMethod(w, r, http.MethodGet) {
			return
		}
		leave, err := o.Enter(r, who, "metrics")
		if err != nil {
			refused(w, err)
			return
		}
		defer leave()
		serve.ServeHTTP(w, r)
	}
}

// measureTime bounds one measurement.
const measureTime = 5 * time.Second

// look is a collector that measures at each collection.
type look struct {
	status  func() Status
	measure func(context.Context) Measures
}

// Describe sends nothing: the collector is unchecked, because its metrics depend on the state.
func (l look) Describe(chan<- *prometheus.Desc) {}

// Collect measures and sends all metrics.
func (l look) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), measureTime)
	defer cancel()
	measured{l.status(), l.measure(ctx)}.collect(ch)
}

// measured is one measurement.
type measured struct {
	status Status
	m      Measures
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("doorward_"+name, help, labels, nil)
}

var (
	metricInfo       = desc("info", "The version that runs; always 1.", "version")
	metricSessions   = desc("sessions", "Open MCP sessions.")
	metricInstances  = desc("server_instances", "Running instances of a server.", "server")
	metricState      = desc("server_state", "1 for the state that a server is in.", "server", "state")
	metricAuthFailed = desc("authentication_failures_total", "Failed attempts to authenticate.", "reason")
	metricRefused    = desc("refused_total", "Calls that the gate refused, by the kind of rule that refused them.", "class")
	metricAuditSeq   = desc("audit_seq", "The number of the last audit record.")
	metricAuditOK    = desc("audit_ok", "1 while the audit log can be written.")

	metricStoreUp    = desc("agent_store_up", "1 while the store of messaging answers.")
	metricAccepted   = desc("agent_accepted_total", "Deliveries that were accepted, one for each recipient of a message.")
	metricMessages   = desc("agent_messages", "Deliveries by state.", "state")
	metricDifference = desc("agent_invariant_difference", "Accepted minus the sum of all states: not 0 if messages were lost or duplicated.")
	metricPeers      = desc("agent_peers", "Registered peers by presence.", "presence")
	metricWaits      = desc("agent_waits_open", "Calls that wait for mail now.")
	metricSends      = desc("agent_sends_total", "Calls of send since the start, by outcome.", "result")
)

// mailStates returns all states of a delivery, so that each has a series from the start.
func mailStates() []string {
	return []string{mail.Held, mail.Queued, mail.Leased, mail.Acked, mail.Rejected, mail.Expired, mail.Dead, mail.Refused, mail.Purged, mail.Evicted}
}

// collect sends the metrics of one measurement.
func (c measured) collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	s := c.status
	gauge(metricInfo, 1, s.Version)
	gauge(metricSessions, float64(s.Sessions))
	for _, v := range s.Servers {
		gauge(metricInstances, float64(v.Instances), v.Name)
		gauge(metricState, 1, v.Name, v.State)
	}
	count(metricAuthFailed, float64(s.Authentication.Missing), "missing")
	count(metricAuthFailed, float64(s.Authentication.Invalid), "invalid")
	count(metricAuthFailed, float64(s.Authentication.Limited), "limited")
	for class, n := range c.m.Refused {
		count(metricRefused, float64(n), class)
	}
	gauge(metricAuditSeq, float64(s.Audit.Seq))
	gauge(metricAuditOK, truth(s.Audit.State == "ok"))
	if c.m.Messaging {
		gauge(metricStoreUp, truth(c.m.Agent != nil))
	}
	if a := c.m.Agent; a != nil {
		a.collect(gauge, count)
	}
	if i := c.m.Instructions; i != nil {
		i.collect(ch, gauge, count)
	}
}

type sample func(d *prometheus.Desc, v float64, labels ...string)

func (a *AgentMeasures) collect(gauge, count sample) {
	difference := a.Accepted
	for _, state := range mailStates() {
		difference -= a.States[state]
		gauge(metricMessages, float64(a.States[state]), state)
	}
	count(metricAccepted, float64(a.Accepted))
	gauge(metricDifference, float64(difference))
	for _, presence := range []string{"awake", "asleep", "gone"} {
		gauge(metricPeers, float64(a.Peers[presence]), presence)
	}
	gauge(metricWaits, float64(a.Waits))
	for _, result := range results(a.Sends) {
		count(metricSends, float64(a.Sends[result]), result)
	}
}

// results returns the outcomes of sends. Success always has a series.
func results(sends map[string]uint64) []string {
	out := []string{"accepted"}
	for r := range sends {
		if !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
