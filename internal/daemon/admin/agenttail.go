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
	// tailRound is how long one look of a tail waits for changes. After each
	// the caller's right is looked at again, so a revoked one ends in time.
	tailRound = 4 * time.Second
	// tailPause keeps a tail whose looks end at once, as in a daemon that is
	// closing, from turning in circles.
	tailPause = 100 * time.Millisecond
	// tailWrite is how long a caller may take for a page.
	tailWrite = 10 * time.Second
)

// tail serves GET /admin/v1/agent/tail, an event stream of state changes from now
// on. It is one act with one record, however long it lasts. It takes no starting
// point, because that would show earlier events. It ends with the caller, with
// the daemon, or with an event `end` that states why.
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

// ended is why a stream is ended, with the status that it would have had.
type ended struct {
	Failure
	Status int `json:"status"`
}

// further is the next look, for a caller who may still look.
func (m Messaging) further(r *http.Request, who *principal.Principal, peer string, after int64) (*agent.Tailed, error) {
	if m.Holds != nil && !m.Holds(who) {
		return nil, &gate.Refusal{Code: gate.CodeDenied, Rule: "revoked"}
	}
	return m.Agents.Tail(r.Context(), m.caller(r, who), peer, after, int(tailRound/time.Millisecond))
}

// tailing is one stream.
type tailing struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

// write sends a page, or a comment in its place, so that a caller who has gone
// shows.
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

// event sends v on one line.
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
