package deliver

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/doorward/doorward/internal/base/sse"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
)

// actionEvents is the action of listening for changes of instructions. The events carry
// no text.
const actionEvents = "instructions.events"

const (
	// eventsAlive is the time between comments on a silent stream.
	eventsAlive = 15 * time.Second
	// eventsHold is how often the right to a stream is checked again: a stream ends
	// within five seconds after its right has ended.
	eventsHold = 2 * time.Second
)

// events serves GET /auth/events: one act, from here to its end. The header
// Doorward-Revision is the revision at which the stream begins, so that a reader
// with a text of another revision knows that it has missed a change.
func (q eventRequest) events() error {
	a := gate.Act{Who: q.reader.Who, Action: actionEvents, Server: ServerName, Kind: gate.Stream, Source: source}
	if q.reader.Session != nil {
		a.Delivery = q.reader.Session.ID
	}
	pass, err := q.s.o.Gate.Enter(a)
	if err != nil {
		return err
	}
	events, leave := q.s.Hears(q.reader)
	defer leave()
	e := &stream{w: q.w, rc: http.NewResponseController(q.w)}
	result := "left"
	if e.begin(q.s.readers.Status(q.reader).Revision) {
		result = q.hear(e, events)
	}
	pass.Leave(result, e.bytes)
	return nil
}

// hear passes events on until the stream ends, and returns the cause in one word.
func (q eventRequest) hear(e *stream, events <-chan Event) (result string) {
	keep, hold := time.Tick(eventsAlive), time.Tick(eventsHold)
	var over <-chan struct{}
	if q.reader.Session != nil {
		over = q.s.o.Sessions.Done(q.reader.Session.ID)
	}
	for {
		alive := true
		select {
		case <-q.r.Context().Done():
			return "left"
		case <-over:
			e.event(Event{Name: EventRevoked})
			return "revoked"
		case said, open := <-events:
			switch {
			case !open:
				return "closed"
			case said.Name == EventRevoked:
				e.event(said)
				return "revoked"
			}
			alive = e.event(said)
		case <-hold:
			if !q.holds() {
				e.event(Event{Name: EventRevoked})
				return "revoked"
			}
		case <-keep:
			alive = e.send([]byte(": keep-alive\n\n"))
		}
		if !alive {
			return "left"
		}
	}
}

// holds reports whether policy still lets the reader listen, and whether its
// proofs still hold: the connection or the token of the request, and what its
// session was made with. For a session token over TCP the session itself is the
// only proof, and Done reports its end.
func (q eventRequest) holds() bool {
	r := q.reader
	if !q.s.o.Gate.Allows(policy.Request{Who: r.Who, Action: actionEvents, Server: ServerName}).Allow {
		return false
	}
	if r.Session != nil && (!q.s.credentials.stands(r.Session) || !q.unix) {
		return q.s.credentials.stands(r.Session)
	}
	return q.s.credentials.holds(r.Who)
}

// stream is one stream of events.
type stream struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	bytes int64
}

func (e *stream) begin(revision string) bool {
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	if revision != "" {
		h.Set("Doorward-Revision", revision)
	}
	e.w.WriteHeader(http.StatusOK)
	return e.send([]byte(": listening\n\n"))
}

// eventJSON is the data of an event.
type eventJSON struct {
	Revision string `json:"revision,omitempty"`
}

func (e *stream) event(said Event) bool {
	data, err := json.Marshal(eventJSON{Revision: said.Revision})
	return err == nil && e.send(sse.Append(nil, "", said.Name, data))
}

func (e *stream) send(b []byte) bool {
	if e.rc.SetWriteDeadline(time.Now().Add(writeLimit)) != nil {
		return false
	}
	n, err := e.w.Write(b)
	e.bytes += int64(n)
	return err == nil && e.rc.Flush() == nil
}
