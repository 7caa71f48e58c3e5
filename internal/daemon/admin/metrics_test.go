package admin

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

// scrape asks for /metrics and gives the answer.
func scrape(t *testing.T, method string, m Measures, refuse error) *httptest.ResponseRecorder {
	t.Helper()
	o := Options{
		Enter: func(_ *http.Request, _ *principal.Principal, what string) (func(), error) {
			if what != "metrics" {
				t.Errorf("it entered as %q", what)
			}
			return func() {}, refuse
		},
		Status: func() Status {
			return Status{Version: "1.2", Sessions: 3, Audit: Audit{Seq: 41, State: "ok"}, Authentication: Authentication{Missing: 1, Invalid: 2, Limited: 3},
				Servers: []Server{{Name: "notes", State: "connected", Instances: 2}, {Name: "agent", State: "connected", Instances: 1}}}
		},
	}
	o.Metrics = NewRegistry(o.Status, func(context.Context) Measures { return m })
	w := httptest.NewRecorder()
	Paths(o)["/metrics"](w, httptest.NewRequest(method, "/metrics", nil), principal.New("uid:1"))
	return w
}

func samples(body string) map[string]string {
	out := make(map[string]string)
	for line := range strings.Lines(body) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && line[0] != '#' {
			out[name+"}"] = value
		} else if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && line[0] != '#' {
			out[name] = value
		}
	}
	return out
}

func TestMetricsShowTheMailAndThatNoneIsLost(t *testing.T) {
	t.Parallel()
	w := scrape(t, "GET", Measures{Messaging: true, Refused: map[string]uint64{"policy": 5},
		Agent: &AgentMeasures{Accepted: 10, States: map[string]int64{mail.Acked: 6, mail.Queued: 3, mail.Held: 1},
			Peers: map[string]int{"awake": 2}, Waits: 1, Sends: map[string]uint64{"accepted": 9, "MAILBOX_FULL": 1}}}, nil)
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		t.Fatalf("%d %s", w.Code, w.Header())
	}
	got := samples(w.Body.String())
	for name, want := range map[string]string{
		"doorward_agent_accepted_total":                            "10",
		`doorward_agent_messages{state="acked"}`:                   "6",
		`doorward_agent_messages{state="evicted"}`:                 "0",
		"doorward_agent_invariant_difference":                      "0",
		`doorward_agent_peers{presence="awake"}`:                   "2",
		`doorward_agent_peers{presence="gone"}`:                    "0",
		"doorward_agent_waits_open":                                "1",
		`doorward_agent_sends_total{result="accepted"}`:            "9",
		`doorward_agent_sends_total{result="MAILBOX_FULL"}`:        "1",
		"doorward_agent_store_up":                                  "1",
		`doorward_refused_total{class="policy"}`:                   "5",
		`doorward_authentication_failures_total{reason="limited"}`: "3",
		"doorward_audit_seq":                                       "41",
		"doorward_audit_ok":                                        "1",
		"doorward_sessions":                                        "3",
		`doorward_server_instances{server="notes"}`:                "2",
		`doorward_server_state{server="notes",state="connected"}`:  "1",
		`doorward_info{version="1.2"}`:                             "1",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %s", name, got[name], want)
		}
	}
	for name := range got {
		if !strings.HasPrefix(name, "doorward_") {
			t.Errorf("%s is of another registry", name)
		}
	}
}

func TestMetricsShowWhatIsLost(t *testing.T) {
	t.Parallel()
	w := scrape(t, "GET", Measures{Messaging: true, Agent: &AgentMeasures{Accepted: 10, States: map[string]int64{mail.Acked: 6}}}, nil)
	if got := samples(w.Body.String())["doorward_agent_invariant_difference"]; got != "4" {
		t.Errorf("four are lost, and it shows %q", got)
	}
}

func TestMetricsWithoutAStoreSaySo(t *testing.T) {
	t.Parallel()
	got := samples(scrape(t, "GET", Measures{Messaging: true}, nil).Body.String())
	if got["doorward_agent_store_up"] != "0" || got["doorward_sessions"] != "3" {
		t.Errorf("%v", got)
	}
	if _, ok := got["doorward_agent_invariant_difference"]; ok {
		t.Error("it claims to have counted")
	}
	if _, ok := samples(scrape(t, "GET", Measures{}, nil).Body.String())["doorward_agent_store_up"]; ok {
		t.Error("messaging that is off has a store")
	}
}

func TestMetricsAreForAdministrators(t *testing.T) {
	t.Parallel()
	if w := scrape(t, "GET", Measures{}, &gate.Refusal{Code: gate.CodeDenied}); w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "doorward_") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := scrape(t, "POST", Measures{}, nil); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}
