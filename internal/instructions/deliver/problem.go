package deliver

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/trust/gate"
)

// ErrShell is wrapped when a command of the operator came from below a registered agent,
// or from a process whose ancestors cannot all be read: an agent's shell must not act as
// the operator.
var ErrShell = errors.New("AGENT_SHELL")

// ErrOffline refuses a command that needs a running daemon.
var ErrOffline = errors.New("there are sessions only in a running daemon")

// Reasons for which a command was refused as that of an agent's shell.
const (
	whyAgent   = "agent"   // an agent is above the caller
	whyUnknown = "unknown" // the caller's ancestors cannot be determined
)

// shellError is an ErrShell with the reason.
type shellError struct {
	why string
	err error
}

func (e *shellError) Error() string { return ErrShell.Error() + ": " + e.err.Error() }

func (e *shellError) Is(t error) bool { return t == ErrShell }

func (e *shellError) Unwrap() error { return e.err }

// problem is the body of a failure under /auth/ (RFC 9457). Everything in it is constant,
// except Variable, a name from the schema of a text that the caller may read, and
// Problems, which only an operator gets. So two failures of one kind have the same bytes,
// whatever their cause.
type problem struct {
	Type     string    `json:"type"`
	Title    string    `json:"title"`
	Status   int       `json:"status"`
	Code     string    `json:"code"`
	Detail   string    `json:"detail,omitempty"`
	Variable string    `json:"variable,omitempty"`
	Why      string    `json:"why,omitempty"` // of agent_shell: agent or unknown
	Problems []Mistake `json:"problems,omitempty"`

	wait  int    // seconds for Retry-After; 0: none
	allow string // for Allow
}

// Mistake is one problem of a document.
type Mistake struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Text string `json:"text"`

	Warning bool `json:"warning,omitempty"` // it does not prevent the delivery
}

func mistakes(all document.Problems) []Mistake {
	out := []Mistake{}
	for _, p := range all {
		out = append(out, Mistake{File: p.File, Line: p.Line, Text: p.Text, Warning: p.Warning})
	}
	return out
}

func (p *problem) Error() string { return p.Code }

func newProblem(status int, code, detail string) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

// retryTime is the Retry-After of an unavailable resource, in seconds.
const retryTime = 5

// The failures of this package. Each call returns a new value, because callers add to it.
func tokenInURL() *problem {
	return newProblem(http.StatusBadRequest, "token_in_url", "A token must be in a header, never in a URL. Treat this one as compromised.")
}
func malformed() *problem { return newProblem(http.StatusBadRequest, "malformed", "") }
func unauthenticated() *problem {
	return newProblem(http.StatusUnauthorized, "unauthenticated", "")
}
func notPermitted() *problem { return newProblem(http.StatusForbidden, "not_permitted", "") }
func notFound() *problem     { return newProblem(http.StatusNotFound, "not_found", "") }
func notAllowed(allow string) *problem {
	p := newProblem(http.StatusMethodNotAllowed, "method_not_allowed", "")
	p.allow = allow
	return p
}
func tooLarge() *problem {
	return newProblem(http.StatusRequestEntityTooLarge, "too_large", "")
}
func wrongType() *problem {
	return newProblem(http.StatusUnsupportedMediaType, "unsupported_media_type", "A body is application/json.")
}
func rateLimited(wait int) *problem {
	p := newProblem(http.StatusTooManyRequests, "rate_limited", "")
	p.wait = max(wait, 1)
	return p
}
func unreachable() *problem {
	p := newProblem(http.StatusServiceUnavailable, "store_unreachable", "")
	p.wait = retryTime
	return p
}
func unavailable() *problem {
	p := newProblem(http.StatusServiceUnavailable, "unavailable", "")
	p.wait = retryTime
	return p
}

// problemOf returns the problem that a caller gets for err. loud: err is logged for the
// operator, because the caller did not cause it.
func problemOf(err error) (p *problem, loud bool) {
	var refusal *gate.Refusal
	var variable *document.VarError
	var wrong document.Problems
	var shell *shellError
	switch {
	case errors.As(err, &p):
		return p, false
	case errors.As(err, &refusal):
		return refused(refusal), refusal.Err != nil
	case errors.As(err, &variable):
		return invalidVariables(variable.Name), false
	case errors.As(err, &wrong):
		return invalidDocument(wrong), false
	case errors.As(err, &shell):
		return agentShell(shell.why), false
	}
	if p = known(err); p != nil {
		return p, false
	}
	return unavailable(), true
}

// known returns the problem of an error that is one of the constants; nil: it is none of
// them.
func known(err error) *problem {
	for _, k := range []struct {
		is   error
		make func() *problem
	}{
		{ErrEnded, unauthenticated}, {ErrStore, unreachable}, {ErrNotFound, notFound},
		{library.ErrUnknown, notFound}, {session.ErrUnknown, notFound},
		{session.ErrRequest, malformed}, {library.ErrLabel, malformed},
		{session.ErrTooMany, func() *problem { return rateLimited(int(sessionsSpan / time.Second)) }},
		{library.ErrRemote, conflict("remote_store", "The documents come from another Doorward: change them there.")},
		{library.ErrAmbiguous, conflict("conflict", "ambiguous: it matches several versions; name one in full")},
		{library.ErrRevoked, conflict("conflict", "revoked: that version was withdrawn permanently")},
		{library.ErrWithdrawn, conflict("conflict", "withdrawn: the name was revoked; promote a version of it")},
		{library.ErrAbsent, conflict("conflict", "absent: no file in the instruction directory has that name and audience")},
		{library.ErrNoEarlier, conflict("conflict", "no earlier: there is no earlier production version")},
		{library.ErrDamaged, conflict("conflict", "damaged: its content in the database cannot be opened")},
		{library.ErrNowhere, conflict("conflict", "nowhere: no instruction directory is configured")},
		{ErrOffline, conflict("conflict", "offline: there are sessions only in a running daemon")},
	} {
		if errors.Is(err, k.is) {
			return k.make()
		}
	}
	return nil
}

// conflict returns the failure for an operator's act that cannot be done now.
func conflict(code, detail string) func() *problem {
	return func() *problem { return newProblem(http.StatusConflict, code, detail) }
}

func agentShell(why string) *problem {
	p := newProblem(http.StatusForbidden, "agent_shell",
		"An operator's command must not be run by a registered agent, or by a process whose ancestors cannot be determined.")
	p.Why = why
	return p
}

// refused returns the problem for a refusal of the gate.
func refused(r *gate.Refusal) *problem {
	switch r.Code {
	case gate.CodeRate:
		return rateLimited(r.RetryAfter())
	case gate.CodeUnavailable:
		p := unavailable()
		if wait := r.RetryAfter(); wait > 0 {
			p.wait = wait
		}
		return p
	}
	return notPermitted()
}

var variableName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// invalidVariables names the variable at fault. A name that the caller made up is
// returned only if it is a plain one.
func invalidVariables(name string) *problem {
	p := newProblem(http.StatusUnprocessableEntity, "invalid_variables", "")
	if variableName.MatchString(name) {
		p.Variable = name
	}
	return p
}

func invalidDocument(all document.Problems) *problem {
	p := newProblem(http.StatusUnprocessableEntity, "invalid_document", "")
	p.Problems = mistakes(all)
	return p
}

// write sends the problem.
func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	guard(h)
	h.Set("Content-Type", "application/problem+json")
	if p.wait > 0 {
		h.Set("Retry-After", strconv.Itoa(p.wait))
	}
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.Status == http.StatusUnauthorized && h.Get("WWW-Authenticate") == "" {
		h.Set("WWW-Authenticate", "Bearer")
	}
	body, err := json.Marshal(p)
	if err != nil { // cannot happen: texts and numbers only
		body = nil
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	w.Write(body)
}

// guard sets the headers of every answer under /auth/: no intermediary may store
// it, and no client may interpret it as another type.
func guard(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
}

// Unavailable answers a request while the database of instruction delivery is
// unavailable.
func Unavailable(w http.ResponseWriter) { unreachable().write(w) }

// TooMany answers a caller whose requests are refused for some seconds.
func TooMany(w http.ResponseWriter, wait int) { rateLimited(wait).write(w) }
