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
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

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
	s := &Set{uid: strconv.FormatUint(uint64(o.UID), 10), actions: knownActions(), cache: newCache(), lists: o.Servers}
	s.arrange(o.Servers, inOrder(own, builtin, lists))
	return s, problems
}

// own are the rules of the operator's file.
func (o Options) own() ([]*rule, []Problem) {
	if o.File == "" {
		return nil, nil
	}
	rules, problems := load(o.File, o.Text)
	for _, r := range rules {
		problems = append(problems, r.unfounded(o.File)...)
	}
	return rules, problems
}

// unfounded refuses what a rule may not rest on: a permit on an observed fact, and
// any rule on the context as a whole, which does not show its grades.
func (r *rule) unfounded(file string) (found []Problem) {
	say := func(text string) {
		p := Problem{File: file, Line: r.line, Text: text}
		if !strings.HasPrefix(r.name, r.at) {
			p.Key = Clip(r.name)
		}
		if !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	for _, c := range r.syntax.Conditions {
		Paths(c.Body, func(p Path) {
			switch {
			case p.Variable != "context":
			case len(p.Steps) == 0:
				say("a rule may not use context as a whole, since it does not show which facts it rests on; name them, as in context.attested.uid")
			case r.permit && p.Steps[0] == principal.Observed.String():
				say("a permit may not rest on an observed fact; write a forbid")
			}
		})
	}
	return found
}

// Statement is one rule as it was read.
type Statement struct {
	Name, At string // At: FILE:LINE; empty for a rule that is in no file
	Line     int
	Facts    []string // that it reads
	Args     bool     // it reads arguments
	Syntax   *ast.Policy
}

// Statements are the rules of the operator's file, and those that the servers' own
// lists are compiled to.
func (o Options) Statements() (own, lists []Statement) {
	rules, _ := o.own()
	return statements(rules), statements(compileLists(o.Servers))
}

func statements(rules []*rule) (all []Statement) {
	for _, r := range rules {
		all = append(all, Statement{r.name, r.at, r.line, r.facts, r.args != nil, r.syntax})
	}
	return all
}

// Default is the text of the default policy.
func Default() []byte { return bytes.Clone(defaultText) }

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

// Decide answers q. A started agent may what it may Itself and each of its
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
