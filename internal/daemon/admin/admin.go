// Package admin is the local API behind the command line: the state of the daemon, the
// principals that it recognises, and the reasons of its decisions.
//
// Invariant: every path passes the gate as action `admin` before anything is looked up, here or
// in a function of Options. There are two exceptions: `whoami` tells a caller only its own
// principal, and a client's hook gets only the number of messages that wait for its agent.
package admin

import (
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// Status is the answer of /admin/v1/status.
type Status struct {
	Version   string     `json:"version"`
	Ready     bool       `json:"ready"`
	Listeners []Listener `json:"listeners"`
	Servers   []Server   `json:"servers"`
	Sessions  int        `json:"sessions"`
	Audit     Audit      `json:"audit"`
	// Authentication counts failures since the start.
	Authentication Authentication `json:"authentication"`
	Configuration  Configuration  `json:"configuration"`
}

// Configuration is the configuration in force.
type Configuration struct {
	File string `json:"file"` // empty: the built-in defaults
	// NotReloaded is the reason why the last reload changed nothing.
	NotReloaded string `json:"not_reloaded,omitempty"`
	// Restart names the changed sections that are in force after a restart.
	Restart []string `json:"restart,omitempty"`
}

// Authentication counts failed attempts: without a token, with an invalid token, and with one
// that was not checked because its source had failed too often.
type Authentication struct {
	Missing uint64 `json:"missing"`
	Invalid uint64 `json:"invalid"`
	Limited uint64 `json:"limited"`
	// Issuer is the reason why the keys of the OAuth issuer are not available; empty: they are,
	// or no token has needed them yet.
	Issuer string `json:"issuer,omitempty"`
}

// Listener is one configured listener with the outcome of the bind table.
type Listener struct {
	Network string `json:"network"`
	Addr    string `json:"addr"`
	State   string `json:"state"` // listening or refused
	Auth    string `json:"auth"`  // peer, token or none
	TLS     bool   `json:"tls"`
	Reason  string `json:"reason"`
	// Refused counts the connections that were closed before a request, by reason.
	Refused map[string]uint64 `json:"refused,omitempty"`
}

// Server is one configured server.
type Server struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	State     string `json:"state"` // idle, starting, connected, failing, refused or withheld
	Era       string `json:"era"`   // legacy, modern, both or unknown
	Instances int    `json:"instances"`
	Sandbox   string `json:"sandbox"` // the mode, and the measures that are not fully in force
	// Stderr holds the last lines of standard error of a failing server, or of a process of it
	// that ended while it was used.
	Stderr []string `json:"stderr,omitempty"`
	// Ended: a process ended by itself, during a call or with an error, and none that was started
	// later has answered a call. Reason says how it ended.
	Ended     bool     `json:"ended,omitempty"`
	Withheld  []string `json:"withheld"`
	Unmatched []string `json:"unmatched,omitempty"` // deny patterns that match no tool it is known to offer
	Reason    string   `json:"reason,omitempty"`
	Problems  []string `json:"problems,omitempty"` // of the documents of the server instructions

	Containment []Measure `json:"containment"`      // the measures that contain a process of it
	Processes   []Process `json:"processes"`        // the running ones
	Unseen      []string  `json:"unseen,omitempty"` // paths that it needs and is not granted, each with the key that grants it
}

// Measure is one measure that contains a server.
type Measure struct {
	Name   string `json:"name"`
	State  string `json:"state"` // enforced, partial or unavailable
	Detail string `json:"detail,omitempty"`
}

// Process is one process of a server, with everything below it.
type Process struct {
	PID         int       `json:"pid"`
	Sandbox     string    `json:"sandbox"`
	Containment []Measure `json:"containment"`
}

// Audit is the state of the record.
type Audit struct {
	Seq    uint64 `json:"seq"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

// Kept is the answer of /admin/v1/audit/kept: the checkpoints in the database, which the log
// must have.
type Kept struct {
	Marks   []audit.Mark `json:"marks"`
	Unknown string       `json:"unknown,omitempty"` // why they are unknown
}

// Prune is the body of POST /admin/v1/audit/prune: exactly one of the two.
type Prune struct {
	Turn    bool `json:"turn,omitempty"`    // close the open segment
	Through int  `json:"through,omitempty"` // remove the segments up to this one
}

// Pruned is the answer to Prune.
type Pruned struct {
	Begins  uint64 `json:"begins,omitempty"`  // number of the first record that remains
	Problem string `json:"problem,omitempty"` // why it was not done
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
	At       string `json:"at,omitempty"` // the place of the rule, FILE:LINE
	// Ask is the rule that holds the act for the operator. Grant is the id of a grant that lets
	// the act through nevertheless.
	Ask   string `json:"ask,omitempty"`
	Grant string `json:"grant,omitempty"`
}

// Policy is the answer of /admin/v1/policy.
type Policy struct {
	Text string `json:"text"`
}

// Options holds the functions of the daemon that the API needs.
type Options struct {
	Status func() Status
	// Enter passes the gate; leave records the end of the act.
	Enter  func(r *http.Request, who *principal.Principal, what string) (leave func(), err error)
	Decide func(policy.Request) policy.Decision
	Policy func() string // in force, as text
	Trust  Truster

	Approver  Approver
	Messaging Messaging
	UI        UI
	Control   Control
	Metrics   prometheus.Gatherer // see NewRegistry
	// Kept returns a Kept about the audit log's checkpoints, and its status.
	Kept func(*http.Request) (any, int)
	// Prune removes old records of the audit log: body and answer are Prune and Pruned.
	Prune func(ctx context.Context, who *principal.Principal, body []byte) (any, int)
}

type handler = func(http.ResponseWriter, *http.Request, *principal.Principal)

// isMethod reports whether r has the method, and otherwise answers 405.
func isMethod(w http.ResponseWriter, r *http.Request, method string) bool {
	if r.Method == method {
		return true
	}
	w.Header().Set("Allow", method)
	answer(w, http.StatusMethodNotAllowed, nil)
	return false
}

// guarded returns the handler of a GET that passes the gate.
func (o Options) guarded(what string, f func(*http.Request) (any, int)) handler {
	return func(w http.ResponseWriter, r *http.Request, who *principal.Principal) {
		if !isMethod(w, r, http.MethodGet) {
			return
		}
		leave, err := o.Enter(r, who, what)
		if err != nil {
			refused(w, err)
			return
		}
		defer leave()
		body, status := f(r)
		answer(w, status, body)
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if body == nil {
		body = map[string]string{"error": http.StatusText(status)}
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // the arguments of a held call are read as they are
	e.Encode(body)
}

// maxBody is the largest body of a POST in bytes.
const maxBody = 8 << 20

// posted returns the handler of a POST that passes the gate. It requires a media type that a
// page in a browser cannot send to another origin without a preflight.
func (o Options) posted(what string, f func(context.Context, *principal.Principal, []byte) (any, int)) handler {
	return o.postedBy(what, func(r *http.Request, who *principal.Principal, body []byte) (any, int) {
		return f(r.Context(), who, body)
	})
}

// postedBy is posted for functions that need the request.
func (o Options) postedBy(what string, f func(*http.Request, *principal.Principal, []byte) (any, int)) handler {
	return func(w http.ResponseWriter, r *http.Request, who *principal.Principal) {
		if !isMethod(w, r, http.MethodPost) {
			return
		}
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			answer(w, http.StatusUnsupportedMediaType, nil)
			return
		}
		leave, err := o.Enter(r, who, what)
		if err != nil {
			refused(w, err)
			return
		}
		defer leave()
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			answer(w, http.StatusBadRequest, nil)
			return
		}
		out, status := f(r, who, body)
		answer(w, status, out)
	}
}
