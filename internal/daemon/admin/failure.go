package admin

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/gate"
)

// Failure is the body of a refusal. Code is a constant of gate, agent, mail or this package.
type Failure struct {
	Error string `json:"error"`
	Code  string `json:"code,omitempty"`
	Why   string `json:"why,omitempty"` // of AGENT_SHELL: agent, unknown or orphan
	Ref   uint64 `json:"ref,omitempty"` // the record of the refusal
}

// StoreUnavailable answers a request for messaging while its database cannot be used.
func StoreUnavailable(w http.ResponseWriter) {
	status := http.StatusServiceUnavailable
	answer(w, status, Failure{Error: http.StatusText(status), Code: mail.StoreUnavailable})
}

// The reasons for refusing a caller as an agent's shell.
const (
	WhyAgent   = "agent"   // it is below a registered agent
	WhyUnknown = "unknown" // the processes above it could not all be read
	WhyOrphan  = "orphan"  // it is below a process that a client may have left behind
)

// ErrOrphan refuses a caller below a process that an MCP client may have left behind.
var ErrOrphan = fmt.Errorf("a process above the caller may be an orphan of a client: %w", agent.ErrAgentShell)

// whyShell returns the reason why a caller was refused as an agent's shell.
func whyShell(r *http.Request, err error, above func(*http.Request) ([]string, bool)) string {
	if errors.Is(err, ErrOrphan) {
		return WhyOrphan
	}
	if _, complete := above(r); !complete {
		return WhyUnknown
	}
	return WhyAgent
}

const (
	codeAgentShell = "AGENT_SHELL"
	codeNotAllowed = "NOT_ALLOWED"
)

// errArgument refuses a malformed query or body.
var errArgument = errors.New("wrong argument")

var (
	// ErrNotFound means that there is no such server (404).
	ErrNotFound = errors.New("no such server")
	// ErrStale means that the withheld definition is not the one that was shown (409).
	ErrStale = errors.New("it has changed since it was shown")
)

func statusOf(err error) int {
	switch {
	case errors.Is(err, ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, ErrStale):
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}

func mailStatus(code string) int {
	switch code {
	case mail.PasskeyRequired:
		return http.StatusForbidden
	case mail.UnknownRecipient, mail.UnknownMessage:
		return http.StatusNotFound
	case mail.InvalidArgument, mail.NameInvalid, mail.NameReserved:
		return http.StatusBadRequest
	case mail.StoreUnavailable, mail.AuditUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusConflict
}

func refused(w http.ResponseWriter, err error) {
	var refusal *gate.Refusal
	status := http.StatusForbidden
	if errors.As(err, &refusal) {
		status = refusalStatus(w.Header(), refusal)
	}
	answer(w, status, nil)
}

func refusalStatus(h http.Header, refusal *gate.Refusal) int {
	if wait := refusal.RetryAfter(); wait > 0 {
		h.Set("Retry-After", strconv.Itoa(wait))
	}
	switch refusal.Code {
	case gate.CodeUnavailable:
		return http.StatusServiceUnavailable
	case gate.CodeRate:
		return http.StatusTooManyRequests
	}
	return http.StatusForbidden
}
