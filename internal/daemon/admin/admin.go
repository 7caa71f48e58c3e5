// Package admin is the local API behind the command line: what the daemon is
// doing, who it thinks is calling, and why it decides as it does.
//
// Invariant: every path passes the gate as action `admin` before anything is
// looked up, in here or in what it calls. Two are apart: `whoami` tells a caller
// only what it is itself, and the hook of a client only how much mail waits for
// the agent that it belongs to.
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
	// Authentication counts what failed since the start.
	Authentication Authentication `json:"authentication"`
}

// Authentication counts failed attempts: without a token, with one that is
// not good, and with one that was not looked at, since its source had failed
// too often.
type Authentication struct {
	Missing uint64 `json:"missing"`
	Invalid uint64 `json:"invalid"`
	Limited uint64 `json:"limited"`
}

// Listener is one line of the bind table as it came out.
type Listener struct {
	Network string `json:"network"`
	Addr    string `json:"addr"`
	State   string `json:"state"` // listening or refused
	Auth    string `json:"auth"`  // peer, token or none
	TLS     bool   `json:"tls"`
	Reason  string `json:"reason"`
	// Refused counts the connections that were closed unheard, by reason.
	Refused map[string]uint64 `json:"refused,omitempty"`
}

// Server is one configured server.
type Server struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	State     string `json:"state"` // idle, starting, connected, failing, refused or withheld
	Era       string `json:"era"`   // legacy, modern, both or unknown
	Instances int    `json:"instances"`
	Sandbox   string `json:"sandbox"` // the mode, and what of it does not hold in full
	// Stderr are the last lines of standard error of a server that is failing.
	Stderr    []string `json:"stderr,omitempty"`
	Withheld  []string `json:"withheld"`
	Unmatched []string `json:"unmatched,omitempty"` // deny patterns that match no tool it is known to offer
	Reason    string   `json:"reason,omitempty"`

	Containment []Measure `json:"containment"`      // by what a process of it is contained
	Processes   []Process `json:"processes"`        // those that run
	Unseen      []string  `json:"unseen,omitempty"` // paths that it needs and is not granted, each with the key that grants it
}

// Measure is one thing that contains a server.
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

// Audit is how the record is doing.
type Audit struct {
	Seq    uint64 `json:"seq"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

// Kept is the answer of /admin/v1/audit/kept: the checkpoints that the log must
// have, by the database.
type Kept struct {
	Marks   []audit.Mark `json:"marks"`
	Unknown string       `json:"unknown,omitempty"` // why there are none
}

// Prune is the body of POST /admin/v1/audit/prune: one of the two.
type Prune struct {
	Turn    bool `json:"turn,omitempty"`    // close the open segment
	Through int  `json:"through,omitempty"` // remove the segments up to this one
}

// Pruned is its answer.
type Pruned struct {
	Begins  uint64 `json:"begins,omitempty"`  // number of the first record that stays
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
	At       string `json:"at,omitempty"` // where the rule stands, FILE:LINE
	// Ask is the rule by which the act is held for the operator, and Grant the id of the
	// grant that lets it through all the same.
	Ask   string `json:"ask,omitempty"`
	Grant string `json:"grant,omitempty"`
}

// Policy is the answer of /admin/v1/policy.
type Policy struct {
	Text string `json:"text"`
}

// Options are what the API needs from the daemon.
type Options struct {
	Status func() Status
	// Enter passes the gate; leave records the end.
	Enter  func(r *http.Request, who *principal.Principal, what string) (leave func(), err error)
	Decide func(policy.Request) policy.Decision
	Policy func() string // in force, as text
	Trust  Truster

	Approver  Approver
	Messaging Messaging
	UI        UI
	Control   Control
	Metrics   prometheus.Gatherer // see NewRegistry
	// Kept is the answer about the audit log's checkpoint, a Kept, and its status.
	Kept func(*http.Request) (any, int)
	// Prune removes old records of the audit log: body and answer are Prune and Pruned.
	Prune func(ctx context.Context, who *principal.Principal, body []byte) (any, int)
}

type handler = func(http.ResponseWriter, *http.Request, *principal.Principal)

// isMethod reports whether r has the method, and otherwise refuses it.
func isMethod(w http.ResponseWriter, r *http.Request, method string) bool {
	if r.Method == method {
		return true
	}
	w.Header().Set("Allow", method)
	answer(w, http.StatusMethodNotAllowed, nil)
	return false
}

// guarded wraps what only an administrator may see.
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
	json.NewEncoder(w).Encode(body)
}

// maxBody bounds what an administrator may post.
const maxBody = 8 << 20

// posted is guarded for what changes something. A page in a browser cannot
// send this media type without being asked first.
func (o Options) posted(what string, f func(context.Context, *principal.Principal, []byte) (any, int)) handler {
	return o.postedBy(what, func(r *http.Request, who *principal.Principal, body []byte) (any, int) {
		return f(r.Context(), who, body)
	})
}

// postedBy is posted for what depends on the process behind the request.
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
