// Package policy decides what a principal may do: a pure function from
// (principal, action, resource, arguments) to a Decision with the rule behind
// it. The rules are Cedar: the default policy beside this file, the servers'
// own lists compiled to it, and the operator's file on top.
//
// Invariants: Decide does no I/O and reads no clock, so the same question under
// the same Set has the same answer, from its cache or not. Nothing matched
// means deny, and a forbid wins over every permit. A forbid that cannot be
// evaluated denies; a permit that cannot is none. Claimed facts are never
// looked at, and no permit of the operator's reads an observed one: Compile
// refuses it.
package policy

import (
	"github.com/cedar-policy/cedar-go"

	"github.com/doorward/doorward/internal/trust/principal"
)

// ActionAdmin is the one action that is neither an MCP method nor one of a
// built-in server.
const ActionAdmin = "admin"

// ActionApprove is deciding about held acts. A scope must name it.
const ActionApprove = "approve"

// RuleNoMessaging keeps callers from other machines, and callers without a
// distinguishable identity, from the server agent.
const RuleNoMessaging = "default.no-messaging"

// Requests that a server makes of its client. As actions they are judged by
// the server's ask rules.
const (
	AskElicitation = "elicitation/create"
	AskSampling    = "sampling/createMessage"
	AskRoots       = "roots/list"
)

// The built-in servers. Their own actions are `agent.send` and its like and
// `instructions.read`.
const (
	ServerAgent        = "agent"
	ServerInstructions = "instructions"
)

// Request is one question.
type Request struct {
	Who    *principal.Principal
	Action string // an MCP method, an action of a built-in server, or ActionAdmin
	Server string // the configured server; empty for acts on Doorward itself
	Name   string // tool, prompt or URI; empty when the act is on the server

	// Args is the raw JSON object of a call's arguments; nil where there are
	// none. The caller chose every byte of it.
	Args []byte
	// Confirmed: the request echoes what was issued to the very program that the
	// observed facts of Who describe, after it was looked at, and the program is
	// still the same.
	Confirmed bool
	// Listing: the question is whether to show Name in a list. There are no
	// arguments yet, so rules about them take no part.
	Listing bool
	// Holds: whoever asks can hold the act for the operator. What has to be held is
	// denied to everybody else.
	Holds bool
	// Tool is what the server claims of the tool that is called. A claim may make an
	// act be held; it allows nothing.
	Tool Claims
}

// Claims are a tool's own words about Itself. A tool of which nothing is known has
// neither.
type Claims struct {
	Harmless bool // no destructiveHint
	ReadOnly bool // readOnlyHint
}

// Decision is the answer. Rule names the rule that decided, for the record and
// for `doorward explain`. Reason is constant text for the operator. At is the
// position of the rule, FILE:LINE, empty for a rule that is in no policy file.
type Decision struct {
	Allow  bool
	Rule   string
	Reason string
	At     string
	// Ask names the rule by which the act is allowed and held, and its reason. Empty: it
	// is not held.
	Ask Ask
}

// Ask is why an act waits for the operator.
type Ask struct{ Rule, Reason string }

// List holds patterns; `*` matches any run of characters.
type List struct {
	Allow, Deny []string
}

// ServerRules are the rules of one configured server.
type ServerRules struct {
	Tools List // by tool name
	// Held are patterns of tool names, @destructive or @writes: calls that wait for the
	// operator.
	Held []string
	Ask  List // elicitation, sampling, roots
}

// Set is an immutable policy. Build it with Compile or New.
type Set struct {
	uid     string
	rules   map[cedar.PolicyID]*rule
	servers map[string][]*rule // by configured server: those that can apply to it, in order
	general []*rule            // those that can apply elsewhere
	facts   []string           // that some rule reads
	actions actions
	cache   cache
	lists   map[string]ServerRules
}
