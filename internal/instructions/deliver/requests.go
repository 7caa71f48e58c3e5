package deliver

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/trust/principal"
)

// request is one request during its execution.
type request struct {
	s     *Server
	w     http.ResponseWriter
	r     *http.Request
	who   *principal.Principal // the authenticated principal
	unix  bool
	shown shown
	path  string

	reader *Reader // of the token that was shown; nil: none was shown
	name   string  // of a document or a session, from the path
	query  url.Values
	body   []byte
}

// operatorRequest is a request for the operator's side.
type operatorRequest struct{ *request }

// sessionRequest is a request about the session of its caller.
type sessionRequest struct{ *request }

// textRequest is a request for texts.
type textRequest struct{ *request }

// eventRequest is a request for the stream of events.
type eventRequest struct{ *request }

// response is the answer to a request.
type response struct{ *request }

func operators(fn func(operatorRequest) error) func(*request) error {
	return func(q *request) error { return fn(operatorRequest{q}) }
}

func sessions(fn func(sessionRequest) error) func(*request) error {
	return func(q *request) error { return fn(sessionRequest{q}) }
}

func texts(fn func(textRequest) error) func(*request) error {
	return func(q *request) error { return fn(textRequest{q}) }
}

func streams(fn func(eventRequest) error) func(*request) error {
	return func(q *request) error { return fn(eventRequest{q}) }
}

// unknown returns the 401, which is the same for every failed check. The record states
// which credential was shown and why it is not valid.
func (q *request) unknown(err error) error {
	var invalid *session.Invalid
	reason := "bearer"
	switch {
	case errors.Is(err, errNoToken):
		q.s.web.missing.Add(1)
		return unauthenticated()
	case errors.As(err, &invalid):
		reason = invalid.Reason
	case errors.Is(err, errPlace):
		reason = "place"
	}
	if q.s.o.Refused != nil {
		q.s.o.Refused(q.r, reason)
	}
	return unauthenticated()
}
