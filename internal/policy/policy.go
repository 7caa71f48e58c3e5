// Package policy decides what a principal may do: a pure function from
// (principal, action, resource) to a Decision with the rule behind it.
//
// Invariant: Decide does no I/O, reads no clock and keeps no state, so the
// same question under the same Set always has the same answer. Nothing
// matched means deny. Claimed facts are never looked at, observed ones only
// restrict.
package policy

import (
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/principal"
)

// ActionAdmin is the one action that is neither an MCP method nor one of a
// built-in server.
const ActionAdmin = "admin"

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
	serverAgent        = "agent"
	serverInstructions = "instructions"
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
	// Confirmed: the request echoes what was issued to the very program that
	// the observed facts of Who describe, after it was looked at, and the
	// program is still the same (identity.md 5.1, step 16).
	Confirmed bool
	// Listing: the question is whether to show Name in a list. There are no
	// arguments yet, so rules about them take no part.
	Listing bool
}

// Decision is the answer. Rule names what decided, for the record and for
// `doorward explain`; Reason is constant text for the operator.
type Decision struct {
	Allow  bool
	Rule   string
	Reason string
}

// List holds patterns: `*` stands for any run of characters.
type List struct {
	Allow, Deny []string
}

// ServerRules are the rules of one configured server.
type ServerRules struct {
	Tools List // by tool name
	Ask   List // elicitation, sampling, roots
}

// Set is an immutable policy. Build it with New.
type Set struct {
	uid, loopback string // what follows the kind in the owner's two names
	servers       map[string]*serverSet
}

type serverSet struct {
	tools patterns
	ask   patterns
}

// New builds the default policy for a daemon that runs as uid, with the
// configured servers' own lists.
func New(uid uint32, servers map[string]ServerRules) *Set {
	own := strconv.FormatUint(uint64(uid), 10)
	s := &Set{uid: own, loopback: "uid=" + own, servers: make(map[string]*serverSet, len(servers))}
	for name, r := range servers {
		s.servers[name] = &serverSet{
			tools: compile("mcpServers."+name+".doorward.tools", r.Tools),
			ask:   compile("mcpServers."+name+".doorward.ask", r.Ask),
		}
	}
	return s
}

// Decide answers q. The steps are a ladder of early returns, the unknown
// caller first; what falls through is denied.
func (s *Set) Decide(q Request) Decision {
	if !q.Who.Valid() {
		return nobody
	}
	d := s.role(q)
	if !d.Allow || q.Server == "" {
		return d
	}
	srv := s.servers[q.Server]
	if srv == nil {
		return Decision{Rule: "default.unknown-server", Reason: "no such server"}
	}
	switch q.Action {
	case AskElicitation:
		return srv.ask.decide("elicitation", d)
	case AskSampling:
		return srv.ask.decide("sampling", d)
	case AskRoots:
		return srv.ask.decide("roots", d)
	case "tools/call":
		return srv.tools.decide(q.Name, d)
	}
	return d
}

// The decisions that no list has a part in.
var (
	nobody          = Decision{Rule: "default.nobody", Reason: "no rule allows this principal"}
	owner           = Decision{Allow: true, Rule: "default.owner", Reason: "the daemon's own user on the Unix socket"}
	loopback        = Decision{Allow: true, Rule: "default.loopback", Reason: "a loopback caller of the daemon's own user"}
	loopbackUnknown = Decision{Allow: true, Rule: "default.loopback-unknown", Reason: "a loopback caller whose user the system cannot tell"}
	loopbackAdmin   = Decision{Rule: "default.loopback-no-admin", Reason: "a loopback caller without a token has no admin rights"}
	tokenAny        = Decision{Allow: true, Rule: "default.token", Reason: "a valid token"}
	tokenAdmin      = Decision{Rule: "default.token-no-admin", Reason: "this token has no admin scope"}
	noMessaging     = Decision{Rule: "default.no-messaging", Reason: "messaging needs a known local user or a token on a local listener"}
	unknownAction   = Decision{Rule: "default.unknown-action", Reason: "Doorward itself has no such action"}
)

// role is what the kind of caller may do at all, before a server's own lists.
// The name is canonical, since the principal is valid.
func (s *Set) role(q Request) Decision {
	kind, rest, _ := strings.Cut(q.Who.Name(), ":")
	switch kind {
	case principal.KindUID:
		if rest == s.uid {
			return owner
		}
	case principal.KindLoopback:
		switch rest {
		case s.loopback:
			return restrict(q, loopback, loopbackAdmin, true)
		case "unknown":
			return restrict(q, loopbackUnknown, loopbackAdmin, false)
		}
	case principal.KindToken:
		return tokenRole(q)
	}
	return nobody
}

// restrict gives d for what a caller other than the owner may do: not admin,
// no messaging unless it may, and on Doorward itself only what there is.
func restrict(q Request, d, admin Decision, messaging bool) Decision {
	switch {
	case q.Action == ActionAdmin:
		return admin
	case !messaging && isMessaging(q):
		return noMessaging
	case q.Server == "" && !onDoorward(q.Action):
		return unknownAction
	}
	return d
}

// isMessaging: what sends or reads messages. The session with the built-in
// server and its empty list are no part of it.
func isMessaging(q Request) bool {
	return strings.HasPrefix(q.Action, serverAgent+".") || q.Server == serverAgent && q.Action == "tools/call"
}

// onDoorward are the actions that are on no server: the handshakes of the
// aggregate, and those of the built-in servers.
func onDoorward(action string) bool {
	return isHandshake(action) || strings.HasPrefix(action, serverAgent+".") || strings.HasPrefix(action, serverInstructions+".")
}

func isHandshake(action string) bool { return action == "initialize" || action == "server/discover" }
