package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"

	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

// answerer executes a request with the given body.
type answerer func(r *http.Request, who *principal.Principal, body []byte) (any, error)

// lookup makes a GET of f, which accepts only the known parameters.
func lookup(m Messaging, known []string, f func(context.Context, agent.Caller, url.Values) (any, error)) answerer {
	return func(r *http.Request, who *principal.Principal, _ []byte) (any, error) {
		q, err := query(r, known)
		if err != nil {
			return nil, err
		}
		return f(r.Context(), m.caller(r, who), q)
	}
}

// query returns the parameters of a request. Each must be known and occur once.
func query(r *http.Request, known []string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, errArgument
	}
	for name, values := range q {
		if !slices.Contains(known, name) || len(values) != 1 {
			return nil, errArgument
		}
	}
	return q, nil
}

// act makes a POST of f: its body must be exactly one object of the type In.
func act[In any](m Messaging, f func(context.Context, agent.Caller, In) (any, error)) answerer {
	return func(r *http.Request, who *principal.Principal, body []byte) (any, error) {
		var in In
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		if d.Decode(&in) != nil || d.Decode(&struct{}{}) != io.EOF {
			return nil, errArgument
		}
		return f(r.Context(), m.caller(r, who), in)
	}
}

// notPersonKey marks a request that a person has to make and that did not come from one.
type notPersonKey struct{}

// personal is f for a person only: for any other caller f gets an incomplete chain, so that it
// refuses it like the shell of an agent.
func personal(m Messaging, f answerer) answerer {
	return func(r *http.Request, who *principal.Principal, body []byte) (any, error) {
		var refused error
		if m.Person != nil {
			refused = m.Person(r)
		}
		if errors.Is(refused, agent.ErrAgentShell) {
			r = r.WithContext(context.WithValue(r.Context(), notPersonKey{}, true))
		}
		out, err := f(r, who, body)
		if errors.Is(err, agent.ErrAgentShell) && refused != nil {
			err = refused
		}
		return out, err
	}
}

func (m Messaging) caller(r *http.Request, who *principal.Principal) agent.Caller {
	processes, complete := m.Above(r)
	complete = complete && r.Context().Value(notPersonKey{}) == nil
	return agent.Caller{Who: who, Processes: processes, Complete: complete}
}

// maxAct is the largest body in bytes: a message of the largest configurable size in its
// longest encoding.
const maxAct = 6<<20 + 64<<10

// methods serves a path that reads by GET, acts by POST, or both.
func (o Options) methods(get, post answerer) handler {
	return func(w http.ResponseWriter, r *http.Request, who *principal.Principal) {
		f, allow := get, "GET, POST"
		switch {
		case get == nil:
			allow = "POST"
		case post == nil:
			allow = "GET"
		}
		var body []byte
		if r.Method == http.MethodPost && post != nil {
			if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
				answer(w, http.StatusUnsupportedMediaType, nil)
				return
			}
			var err error
			if body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxAct)); err != nil {
				o.malformed(w, r, who, http.StatusRequestEntityTooLarge)
				return
			}
			f = post
		} else if r.Method != http.MethodGet || get == nil {
			w.Header().Set("Allow", allow)
			answer(w, http.StatusMethodNotAllowed, nil)
			return
		}
		out, err := f(r, who, body)
		if err != nil {
			o.failed(w, r, who, err)
			return
		}
		answer(w, http.StatusOK, out)
	}
}

func (o Options) failed(w http.ResponseWriter, r *http.Request, who *principal.Principal, err error) {
	if errors.Is(err, errArgument) {
		o.malformed(w, r, who, http.StatusBadRequest)
		return
	}
	status, f := o.Messaging.failure(w.Header(), r, err)
	answer(w, status, f)
}

// malformed records and refuses a request before it reaches a method of Agents.
func (o Options) malformed(w http.ResponseWriter, r *http.Request, who *principal.Principal, status int) {
	leave, err := o.Enter(r, who, "agent.malformed")
	if err != nil {
		refused(w, err)
		return
	}
	defer leave()
	answer(w, status, Failure{Error: http.StatusText(status), Code: mail.InvalidArgument})
}

// failure returns the answer to an error. It contains constant texts only.
func (m Messaging) failure(h http.Header, r *http.Request, err error) (status int, f Failure) {
	var refusal *gate.Refusal
	var wrong *mail.Error
	status = http.StatusInternalServerError
	switch {
	case errors.As(err, &refusal):
		status, f.Code, f.Ref = refusalStatus(h, refusal), codeNotAllowed, refusal.Ref
	case errors.Is(err, agent.ErrAgentShell):
		status, f.Code, f.Why = http.StatusForbidden, codeAgentShell, whyShell(r, err, m.Above)
	case errors.As(err, &wrong):
		status, f.Code = mailStatus(wrong.Code), wrong.Code
	}
	f.Error = http.StatusText(status)
	return status, f
}
