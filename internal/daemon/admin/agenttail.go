package admin

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

const (
	// tailRound is how long one read of a tail waits for changes. After each, the caller's
	// right is checked again, so the stream of a revoked caller ends soon.
	tailRound = 4 * time.Second
	// tailPause prevents a busy loop when reads return at once, as in a daemon that is closing.
	tailPause = 100 * time.Millisecond
	// tailWrite is how long the write of a page may block.
	tailWrite = 10 * time.Second
)

// tail serves GET /admin/v1/agent/tail, an event stream of state changes from now on. It is one
// act with one record, however long it lasts. It has no parameter for a starting point, which
// would show earlier events. It ends with its connection, with the daemon, or with an event
// `end` that states the reason.
func (o Options) tail(w http.ResponseWriter, r *http.Request, who *principal.Principal) {
	if !isMethod(w, r, http.MethodGet) {
		return
	}
	q, err := query(r, []string{"peer"})
	var page *agent.Tailed
	if err == nil {
		page, err = o.Messaging.Agents.Tail(r.Context(), o.Messaging.caller(r, who), q.Get("peer"), -1, 0)
	}
	if err != nil {
		o.failed(w, r, who, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	t := &tailing{w: w, rc: http.NewResponseController(w)}
	defer t.rc.SetWriteDeadline(time.Time{})
	for t.write(page) && r.Context().Err() == nil {
		began := time.Now()
		page, err = o.Messaging.further(r, who, q.Get("peer"), page.After)
		if err != nil {
			status, f := o.Messaging.failure(http.Header{}, r, err)
			t.event("end", ended{Failure: f, Status: status})
			return
		}
		if len(page.Changes) == 0 && time.Since(began) < tailPause {
			time.Sleep(tailPause)
		}
	}
}

// ended is the reason for the end of a stream, with the HTTP status of that error.
type ended struct {
	Failure
	Status int `json:"status"`
}

// further reads the next changes, if the caller's proof is still valid.
func (m Messaging) further(r *http.Request, who *principal.Principal, peer string, after int64) (*agent.Tailed, error) {
	if m.Holds != nil && !m.Holds(who) {
		return nil, &gate.Refusal{Code: gate.CodeDenied, Rule: "revoked"}
	}
	return m.Agents.Tail(r.Context(), m.caller(r, who), peer, after, int(tailRound/time.Millisecond))
}

// tailing is one event stream.
type tailing struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

// write sends a page, or a comment if it is empty, so that a closed connection is noticed.
func (t *tailing) write(page *agent.Tailed) bool {
	if len(page.Changes) == 0 {
		return t.send(": nothing yet\n\n")
	}
	for _, c := range page.Changes {
		if !t.event("", c) {
			return false
		}
	}
	return true
}

// event sends v as one event.
func (t *tailing) event(name string, v any) bool {
	b, err := json.Marshal(v)
	if err != nil {
		return false
	}
	if name != "" {
		name = "event: " + name + "\n"
	}
	return t.send(name + "data: " + string(b) + "\n\n")
}

func (t *tailing) send(text string) bool {
	if t.rc.SetWriteDeadline(time.Now().Add(tailWrite)) != nil {
		return false
	}
	if _, err := t.w.Write([]byte(text)); err != nil {
		return false
	}
	return t.rc.Flush() == nil
}
