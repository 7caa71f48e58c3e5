// Package admin is the local API behind the command line: what the daemon is
// doing, who it thinks is calling, and why it decides as it does.
//
// Invariant: every path passes the gate as action `admin` before anything is
// looked up, `whoami` apart, which tells a caller only what it is itself.
package admin

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/doorward/doorward/internal/gate"
	"github.com/doorward/doorward/internal/policy"
	"github.com/doorward/doorward/internal/principal"
)

// Status is the answer of /admin/v1/status.
type Status struct {
	Version   string     `json:"version"`
	Ready     bool       `json:"ready"`
	Listeners []Listener `json:"listeners"`
	Servers   []Server   `json:"servers"`
	Sessions  int        `json:"sessions"`
	Audit     Audit      `json:"audit"`
}

// Listener is one line of the bind table as it came out.
type Listener struct {
	Network string `json:"network"`
	Addr    string `json:"addr"`
	State   string `json:"state"` // listening or refused
	Auth    string `json:"auth"`  // peer, token or none
	TLS     bool   `json:"tls"`
	Reason  string `json:"reason"`
}

// Server is one configured server.
type Server struct {
	Name      string   `json:"name"`
	Kind      string   `json:"kind"`
	State     string   `json:"state"` // idle, connected or refused
	Era       string   `json:"era"`   // legacy, modern, both or unknown
	Instances int      `json:"instances"`
	Sandbox   string   `json:"sandbox"`
	Withheld  []string `json:"withheld"`
	Reason    string   `json:"reason,omitempty"`
}

// Audit is how the record is doing.
type Audit struct {
	Seq    uint64 `json:"seq"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

// Whoami is the answer of /admin/v1/whoami.
type Whoami struct {
	Principal string          `json:"principal"`
	Facts     json.RawMessage `json:"facts"`
}

// Explanation is the answer of /admin/v1/explain.
type Explanation struct {
	Decision string `json:"decision"`
	Rule     string `json:"rule"`
	Reason   string `json:"reason"`
}

// Options are what the API needs from the daemon.
type Options struct {
	Status func() Status
	// Enter passes the gate; leave records the end.
	Enter  func(r *http.Request, who *principal.Principal, what string) (leave func(), err error)
	Decide func(policy.Request) policy.Decision
}

type handler = func(http.ResponseWriter, *http.Request, *principal.Principal)

// Paths are the handlers by exact path.
func Paths(o Options) map[string]handler {
	return map[string]handler{
		"/admin/v1/status":  o.guarded("status", func(*http.Request) (any, int) { return o.Status(), http.StatusOK }),
		"/admin/v1/explain": o.guarded("explain", o.explain),
		"/admin/v1/whoami":  whoami,
	}
}

func whoami(w http.ResponseWriter, r *http.Request, who *principal.Principal) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET")
		answer(w, http.StatusMethodNotAllowed, nil)
		return
	}
	answer(w, http.StatusOK, Whoami{Principal: who.Name(), Facts: who.FactsJSON()})
}

// guarded wraps what only an administrator may see.
func (o Options) guarded(what string, f func(*http.Request) (any, int)) handler {
	return func(w http.ResponseWriter, r *http.Request, who *principal.Principal) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", "GET")
			answer(w, http.StatusMethodNotAllowed, nil)
			return
		}
		leave, err := o.Enter(r, who, what)
		var refusal *gate.Refusal
		if errors.As(err, &refusal) && refusal.Code == gate.CodeUnavailable {
			answer(w, http.StatusServiceUnavailable, nil)
			return
		}
		if err != nil {
			answer(w, http.StatusForbidden, nil)
			return
		}
		defer leave()
		body, status := f(r)
		answer(w, status, body)
	}
}

// explain decides a question without acting on it.
func (o Options) explain(r *http.Request) (any, int) {
	q := r.URL.Query()
	if _, _, err := principal.Parse(q.Get("as")); err != nil {
		return nil, http.StatusBadRequest
	}
	d := o.Decide(policy.Request{Who: principal.New(q.Get("as")), Action: q.Get("action"), Server: q.Get("server"), Name: q.Get("name")})
	e := Explanation{Decision: "deny", Rule: d.Rule, Reason: d.Reason}
	if d.Allow {
		e.Decision = "allow"
	}
	return e, http.StatusOK
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if body == nil {
		body = map[string]string{"error": http.StatusText(status)}
	}
	json.NewEncoder(w).Encode(body)
}
