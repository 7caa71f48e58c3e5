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

// Actions that are not MCP methods. Every other action is the method's name.
const (
	ActionAdmin = "admin"
)

// Requests that a server makes of its client. As actions they are judged by
// the server's ask rules.
const (
	AskElicitation = "elicitation/create"
	AskSampling    = "sampling/createMessage"
	AskRoots       = "roots/list"
)

// Request is one question.
type Request struct {
	Who    *principal.Principal
	Action string // an MCP method, or one of the Action constants
	Server string // the configured server; empty for acts on Doorward itself
	Name   string // tool, prompt or URI; empty when the act is on the server
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
		return Decision{Rule: "default.nobody", Reason: "no principal"}
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

// role is what the kind of caller may do at all, before a server's own lists.
func (s *Set) role(q Request) Decision {
	kind, rest, err := principal.Parse(q.Who.Name())
	if err != nil {
		return Decision{Rule: "default.nobody", Reason: "no principal"}
	}
	switch kind {
	case "uid":
		if rest == s.uid {
			return Decision{Allow: true, Rule: "default.owner", Reason: "the daemon's own user on the Unix socket"}
		}
	case "loopback":
		if q.Action == ActionAdmin {
			return Decision{Rule: "default.loopback-no-admin", Reason: "a loopback caller without a token has no admin rights"}
		}
		if rest == s.loopback || rest == "unknown" {
			return Decision{Allow: true, Rule: "default.loopback", Reason: "a loopback caller of the daemon's own user"}
		}
	case "token":
		return tokenRole(q)
	}
	return Decision{Rule: "default.nobody", Reason: "no rule allows this principal"}
}

// tokenRole is what a token's scope gives. Without one it is every configured
// server and nothing administrative.
func tokenRole(q Request) Decision {
	scope, _ := q.Who.Fact("scope")
	if scope.Value == "" {
		if q.Action == ActionAdmin {
			return Decision{Rule: "default.token-no-admin", Reason: "this token has no admin scope"}
		}
		return Decision{Allow: true, Rule: "default.token", Reason: "a valid token"}
	}
	for rest := scope.Value; rest != ""; {
		var item string
		item, rest, _ = strings.Cut(rest, ",")
		if inScope(strings.TrimSpace(item), q) {
			return Decision{Allow: true, Rule: "token.scope", Reason: "within the token's scope"}
		}
	}
	return Decision{Rule: "token.scope", Reason: "outside the token's scope"}
}

// inScope reports whether one item of a scope covers q. A tool's scope covers
// what comes before its call too: the session and the list, which shows that
// tool alone.
func inScope(item string, q Request) bool {
	if q.Action == ActionAdmin {
		return item == "admin"
	}
	kind, rest, _ := strings.Cut(item, ":")
	switch kind {
	case "server":
		return q.Server == "" || q.Server == rest
	case "tool":
		server, tool, _ := strings.Cut(rest, "/")
		if q.Server == "" || q.Server != server {
			return q.Server == ""
		}
		switch q.Action {
		case "tools/call":
			return q.Name == tool
		case "initialize", "server/discover", "tools/list", "subscriptions/listen", "notifications/roots/list_changed", AskElicitation, AskSampling, AskRoots:
			return true
		}
	}
	return false
}

// patterns is a compiled List; the rule names are built once, since Decide
// runs on every call.
type patterns struct {
	allow, deny []pattern
	none        string // rule when no allow pattern matches
	any         bool   // allow is exactly `*` and there is no deny
}

type pattern struct {
	glob, rule string
}

func compile(prefix string, l List) patterns {
	p := patterns{none: prefix + ".allow"}
	for i, g := range l.Allow {
		p.allow = append(p.allow, pattern{g, prefix + ".allow[" + strconv.Itoa(i) + "]"})
	}
	for i, g := range l.Deny {
		p.deny = append(p.deny, pattern{g, prefix + ".deny[" + strconv.Itoa(i) + "]"})
	}
	p.any = len(l.Deny) == 0 && len(l.Allow) == 1 && l.Allow[0] == "*"
	return p
}

// decide applies the lists on top of the decision d that let the caller in.
// A deny always wins; without a matching allow the answer is deny.
func (p *patterns) decide(name string, d Decision) Decision {
	if p.any {
		return d
	}
	for _, x := range p.deny {
		if Match(x.glob, name) {
			return Decision{Rule: x.rule, Reason: "denied by the server's list"}
		}
	}
	for _, x := range p.allow {
		if Match(x.glob, name) {
			return Decision{Allow: true, Rule: x.rule, Reason: "allowed by the server's list"}
		}
	}
	return Decision{Rule: p.none, Reason: "not on the server's list"}
}

// Match reports whether name matches glob, in which `*` stands for any run
// of bytes and everything else for itself. Comparison is exact: tool names
// are case-sensitive.
func Match(glob, name string) bool {
	for {
		head, rest, star := strings.Cut(glob, "*")
		if !strings.HasPrefix(name, head) {
			return false
		}
		name = name[len(head):]
		if !star {
			return name == ""
		}
		if rest == "" {
			return true
		}
		// The shortest continuation is found by trying each start; the
		// recursion is over stars, of which an operator writes few.
		if !strings.Contains(rest, "*") {
			return strings.HasSuffix(name, rest)
		}
		next, _, _ := strings.Cut(rest, "*")
		i := strings.Index(name, next)
		if i < 0 {
			return false
		}
		name, glob = name[i:], rest
	}
}
