// Package failure defines the texts and codes that callers get for acts that fail, and the
// errors that lead to them.
//
// Invariant: no constant text names anything of the machine or of another principal.
package failure

import (
	"strings"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/wire"
)

// The constant texts and codes that a caller gets for a failure.
var (
	NoServer = &wire.Error{Code: front.CodeNoMethod, Message: "Unknown server"}
	NoID     = &wire.Error{Code: front.CodeInvalidRequest, Message: "Invalid request"}
	NoMethod = &wire.Error{Code: front.CodeNoMethod, Message: "Method not found"}
	NoTool   = &wire.Error{Code: front.CodeInvalidParams, Message: "Unknown tool"}
	NoPrompt = &wire.Error{Code: front.CodeInvalidParams, Message: "Unknown prompt"}
	NoURI    = &wire.Error{Code: front.CodeInvalidParams, Message: "Resource not found"}
	Params   = &wire.Error{Code: front.CodeInvalidParams, Message: "Invalid params"}
	Cursor   = &wire.Error{Code: front.CodeInvalidParams, Message: "Invalid cursor"}
	State    = &wire.Error{Code: front.CodeInvalidParams, Message: "Invalid requestState"}
	Headers  = &wire.Error{Code: front.CodeHeaderMismatch, Message: "A header is missing or differs from the body"}

	CodeUpstream = int64(1502)
	CodeTimeout  = int64(1504)
	CodeBusy     = int64(1503)
)

// Invalid is the error of a request that is wrong itself, as opposed to a failure of its
// server.
type Invalid struct{ E *wire.Error }

// Error implements error.
func (i Invalid) Error() string { return i.E.Message }

// Upstream is the text for a server that failed. Only the owner is told the reason.
const Upstream = "Upstream failed"

// SignIn is the text for a server that needs a sign-in.
const SignIn = "Upstream needs sign-in"

// Here reports whether an error is Doorward's own about its server, as opposed to one that
// the server answered or policy gave.
func Here(e *wire.Error) bool {
	return e != nil && e.Raw == nil && (e.Code == CodeUpstream || e.Code == CodeTimeout || e.Code == CodeBusy)
}

// CapText returns the text for a limit that was reached. It says whether the limit is the
// caller's own or the server's.
func CapText(rule string) string {
	switch rule {
	case gate.RuleCalls:
		return "Too many calls at once"
	case front.RulePerPrincipal, front.RuleSessions:
		return "Too many sessions"
	}
	return "Server is at its limit"
}

// NoAddressee refuses a notification that names no server which the caller may use.
var NoAddressee = &wire.Error{Code: front.CodeNoMethod, Message: "The notification names no server that you may use"}

// Late reports whether e says that a server did not answer in time.
func Late(e *wire.Error) bool { return e.Raw == nil && e.Code == CodeTimeout }

// WhyWithheld tells the owner why an object is withheld, and which command shows it.
func WhyWithheld(server, name string, err error) string {
	return "withheld: " + strings.TrimSuffix(server+"/"+name, "/") + ": " + err.Error() + "; see doorward trust " + server
}

// Content is the error of an act whose message a content rule blocks.
type Content struct{ Rule string }

// Error implements error.
func (e *Content) Error() string { return "blocked by " + e.Rule }

// NoTask answers a request about a task that the caller has not made.
var NoTask = &wire.Error{Code: front.CodeInvalidParams, Message: "Unknown task"}

// Subscriptions answers a resources/subscribe of a session that has as many as one may have.
var Subscriptions = &wire.Error{Code: front.CodeInvalidParams, Message: "Too many subscriptions: unsubscribe from another resource first"}

// OtherTasks answers a request about a task where client and server are of two eras.
var OtherTasks = &wire.Error{Code: front.CodeNoMethod, Message: "Tasks are not carried between protocol revisions before 2026-07-28 and later ones, whose tasks have other states"}

// NewKind answers a legacy client for a result that its era has no form for. The client would
// take the result itself for the end of the call.
var NewKind = &wire.Error{Code: front.CodeInternal, Message: "The server's result has a resultType that protocol revisions before 2026-07-28 cannot carry"}

const (
	// CodeURLRequired is the error of a legacy server whose user has to open a URL
	// first (2025-11-25 Elicitation, "URL Elicitation Required Error"). The modern
	// era has input_required in its place.
	CodeURLRequired = -32042
	// codeNoCapability is the modern era's error for a client that lacks a capability
	// which the request needs.
	codeNoCapability = -32021
)

// Answers if a URL had to be opened and was not.
var (
	NeedsURL   = &wire.Error{Code: codeNoCapability, Message: "The server needs a URL elicitation, which the client does not declare", Data: []byte(`{"requiredCapabilities":{"elicitation":{"url":{}}}}`)}
	URLRefused = &wire.Error{Code: front.CodeInternal, Message: "The URL that the server needs was not opened"}
)

// UnknownOf returns the answer for a name that does not exist, by the method that names it;
// nil for a method that names none.
func UnknownOf(method string) *wire.Error {
	switch method {
	case "tools/call":
		return NoTool
	case "prompts/get":
		return NoPrompt
	case "resources/read", "resources/subscribe", "resources/unsubscribe", "resources/directory/read", "skills/get":
		return NoURI
	case "tasks/get", "tasks/result", "tasks/update", "tasks/cancel":
		return NoTask
	case "completion/complete":
		return Params
	}
	return nil
}

// Blocked is the text for a message that a content rule holds back, towards its sender and
// its receiver.
const Blocked = "Blocked by a content rule"
