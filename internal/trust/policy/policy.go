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
	"slices"
	"strconv"

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

// Claims are a tool's own words about itself. A tool of which nothing is known has
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

// Options are what a Set is compiled from.
type Options struct {
	UID     uint32 // the daemon's own user
	Servers map[string]ServerRules
	File    string // the operator's policy file, for names and problems; empty: none
	Text    []byte // what stands in it
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
	text    []byte
	lists   map[string]ServerRules
}

// New is Compile without a policy file, which finds no problems.
func New(uid uint32, servers map[string]ServerRules) *Set {
	s, problems := Compile(Options{UID: uid, Servers: servers})
	if s == nil {
		panic("policy: the built-in rules: " + problems[0].Text)
	}
	return s
}

// Compile builds a Set. It is nil when one of the problems is more than a
// warning.
func Compile(o Options) (*Set, []Problem) {
	own, problems := o.own()
	builtin, broken := load(defaultFile, defaultText)
	if problems = append(broken, problems...); Fatal(problems) {
		return nil, problems
	}
	lists := compileLists(o.Servers)
	s := &Set{uid: strconv.FormatUint(uint64(o.UID), 10), actions: knownActions(), text: document(lists, o), cache: newCache(), lists: o.Servers}
	s.arrange(o.Servers, inOrder(own, builtin, lists))
	return s, problems
}

// own are the rules of the operator's file.
func (o Options) own() ([]*rule, []Problem) {
	if o.File == "" {
		return nil, nil
	}
	rules, problems := load(o.File, o.Text)
	problems = append(problems, lint(rules, o)...)
	slices.SortStableFunc(problems, func(a, b Problem) int { return a.Line - b.Line })
	return rules, problems
}

// inOrder sorts the rules into the order in which they are named when several
// decide: of permits the operator's own first; of forbids last, because a rule
// that cannot be changed is the stronger reason.
func inOrder(own, builtin, lists []*rule) []*rule {
	var permits, forbids []*rule
	for _, r := range own {
		if r.permit {
			permits = append(permits, r)
		} else {
			forbids = append(forbids, r)
		}
	}
	return slices.Concat(permits, builtin, lists, forbids)
}

// arrange indexes the rules by server, so that a decision costs no more for
// the lists of all the others.
func (s *Set) arrange(servers map[string]ServerRules, rules []*rule) {
	s.rules = make(map[cedar.PolicyID]*rule, len(rules))
	s.servers = make(map[string][]*rule, len(servers))
	for i, r := range rules {
		r.order = i
		s.rules[cedar.PolicyID(r.name)] = r
		s.facts = append(s.facts, r.facts...)
		if r.server == "" {
			s.general = append(s.general, r)
		}
	}
	for name := range servers {
		for _, r := range rules {
			if r.server == "" || r.server == name {
				s.servers[name] = append(s.servers[name], r)
			}
		}
	}
}

// rulesFor are the rules that can apply to an act on a server. A server that
// is not configured is denied by default.unknown-server whatever else a rule
// says of it.
func (s *Set) rulesFor(server string) []*rule {
	if rules, ok := s.servers[server]; ok {
		return rules
	}
	return s.general
}

// Text is the whole policy as one Cedar document, for people.
func (s *Set) Text() string { return string(s.text) }

// Decide answers q. A started agent may what it may itself and each of its
// ancestors may too: the first that may not decides.
func (s *Set) Decide(q Request) Decision {
	d := s.decideHeld(q)
	for who := q.Who.Parent(); who != nil && d.Allow; who = who.Parent() {
		// Nothing that the agent echoed says anything of its ancestor's program.
		q.Who, q.Confirmed = who, false
		above := s.decideHeld(q)
		if !above.Allow {
			above.Reason = beyondParent
			return above
		}
		if d.Ask.Rule == "" {
			d.Ask = above.Ask
		}
	}
	return d
}

// beyondParent is why an agent may not what its own rights would allow.
const beyondParent = "whoever started this agent may not either"

// decideAlone answers q for its caller without its ancestors.
func (s *Set) decideAlone(q Request) Decision {
	if !q.Who.Valid() {
		return nobody
	}
	v := s.verdict(q)
	switch {
	case v.settled():
		return v.plain
	case q.Listing:
		return v.listed()
	}
	return s.withArguments(v, q.Args)
}

// Decisions without a rule: why nothing permitted the act. An unproved scope
// allows nothing; in particular it does not count as a missing scope, which
// stands for all rights.
var (
	nobody        = Decision{Rule: "default.nobody", Reason: "no rule allows this principal"}
	outside       = Decision{Rule: "token.scope", Reason: "outside the token's scope"}
	outsideSpawn  = Decision{Rule: "default.spawn", Reason: "outside the rights of this started agent"}
	tokenAdmin    = Decision{Rule: "default.token-no-admin", Reason: "this token has no admin scope"}
	unknownAction = Decision{Rule: "default.unknown-action", Reason: "Doorward itself has no such action"}
)

// unpermitted says why no rule permits q: the nearest of the rules that did
// not.
func unpermitted(c *caller, q Request) Decision {
	switch {
	case c.scoped && c.kind == principal.KindSpawn:
		return outsideSpawn
	case c.scoped:
		return outside
	case c.kind == principal.KindToken && q.Action == ActionAdmin:
		return tokenAdmin
	case q.Server == "" && (c.kind == principal.KindToken || c.kind == principal.KindLoopback):
		return unknownAction
	}
	return nobody
}
