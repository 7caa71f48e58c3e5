// Package policy decides what a principal may do: a pure function from
// (principal, action, resource, arguments) to a Decision with the rule behind
// it. The rules are Cedar: the default policy beside this file, the servers'
// own lists compiled to it, and the operator's file on top.
//
// Invariants: Decide does no I/O and reads no clock, so the same question under
// the same Set has the same answer, from its cache or not. An act that no permit
// matches is denied, and a forbid wins over every permit. A forbid that cannot be
// evaluated denies; a permit that cannot be evaluated does not apply. Claimed facts are
// never read, and no permit of the operator reads an observed fact: Compile refuses it.
package policy

import (
	"github.com/cedar-policy/cedar-go"

	"github.com/doorward/doorward/internal/trust/principal"
)

// ActionAdmin is the action of administering the daemon. It and ActionApprove are neither
// MCP methods nor actions of a built-in server.
const ActionAdmin = "admin"

// ActionApprove is the action of approving and denying held acts. A scope must name it.
const ActionApprove = "approve"

// RuleNoMessaging is the name of the forbid that denies the server agent to callers from
// other machines, and to callers without a distinguishable identity. RuleUnknownServer is that of
// the forbid that denies servers that are not configured.
const RuleNoMessaging, RuleUnknownServer = "default.no-messaging", "default.unknown-server"

// Requests from a server to its client. As actions they are decided by the server's ask lists too.
const (
	AskElicitation = "elicitation/create"
	AskSampling    = "sampling/createMessage"
	AskRoots       = "roots/list"
)

// The built-in servers. Their own actions begin with their names, such as `agent.send`
// and `instructions.read`.
const (
	ServerAgent        = "agent"
	ServerInstructions = "instructions"
)

// Request is one question to policy.
type Request struct {
	Who    *principal.Principal
	Action string // an MCP method, an action of a built-in server, ActionAdmin or ActionApprove
	Server string // the configured server; empty for acts on Doorward itself
	Name   string // tool, prompt or URI; empty when the act is on the server

	// Args is the raw JSON object of a call's arguments; nil: there are
	// none. The caller chose every byte of it.
	Args []byte
	// SameProgram means that the request echoes the id of a session that was issued to the
	// program that the observed facts of Who describe, after the facts were read, and
	// that the same program still runs.
	SameProgram bool
	// Listing means that the question is whether to show Name in a list. There are no
	// arguments yet, so an entry is shown if some arguments could be allowed.
	Listing bool
	// Holds means that the caller of Decide can hold the act for the operator. If it is
	// false, an act that must be held is denied.
	Holds bool
	// Tool holds the claims of the server about the called tool. A claim may cause an
	// act to be held; it allows nothing.
	Tool Claims
}

// Claims are the claims of a tool's definition about its effects. Both are false for a
// tool that is not known.
type Claims struct {
	Harmless bool // the tool is known and not destructive (destructiveHint)
	ReadOnly bool // readOnlyHint
}

// Decision is the answer to a Request. Rule names the rule that decided, for the record
// and for `doorward explain`. Reason is constant text for the operator. At is the
// position of the rule, FILE:LINE, empty for a rule that is in no policy file.
type Decision struct {
	Allow  bool
	Rule   string
	Reason string
	At     string
	// Ask is set when the act is allowed only with the operator's approval.
	Ask Ask
}

// Ask names the rule that holds an act for the operator, and its reason. It is unrelated
// to ServerRules.Ask. The zero value means that the act is not held.
type Ask struct{ Rule, Reason string }

// List holds patterns; `*` matches any run of characters.
type List struct {
	Allow, Deny []string
}

// ServerRules are the rules of one configured server.
type ServerRules struct {
	Tools List // patterns of tool names
	// Held are the entries of the configuration key tools.ask: patterns of tool names,
	// @destructive or @writes. Calls of these tools are held for the operator.
	Held []string
	Ask  List // the key ask: patterns of the questions of the server: elicitation, sampling, roots
}

// Set is an immutable policy. Compile builds it.
type Set struct {
	uid     string
	rules   map[cedar.PolicyID]*rule
	servers map[string][]*rule // by configured server: the rules that can apply to it, in order
	general []*rule            // the rules whose heads name no server
	facts   []string           // names of the facts that some rule reads
	actions actions
	cache   cache
	lists   map[string]ServerRules
}
