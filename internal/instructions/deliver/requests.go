package deliver

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
