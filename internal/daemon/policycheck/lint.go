package policycheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// lint checks the operator's rules for parts that Cedar accepts and that never match, or
// match for another reason than intended.
func lint(o policy.Options) []policy.Problem {
	var out []policy.Problem
	rules, _ := parse(o.Text) // policy.Compile has reported an error
	for _, r := range rules {
		l := &linter{rule: (*ast.Policy)(r.AST()), o: o, file: o.File, permit: r.Effect() == cedar.Permit}
		l.head()
		l.asking()
		for _, c := range l.rule.Conditions {
			l.node(c.Body)
		}
		l.together()
		out = append(out, l.problems...)
	}
	return out
}

type linter struct {
	rule     *ast.Policy
	permit   bool
	o        policy.Options
	file     string
	problems []policy.Problem
	guarded  bool // it checks whether there are arguments
	narrowed bool // its conditions depend on the caller
	args     bool // it reads arguments
	programs bool // it reads facts that only requests of the same program have
}

func (l *linter) say(warning bool, format string, a ...any) {
	p := policy.Problem{File: l.file, Line: l.rule.Position.Line, Text: fmt.Sprintf(format, a...), Warning: warning}
	if id, given := policy.Annotation(l.rule, "id"); given {
		p.Key = policy.Clip(id)
	}
	if !slices.Contains(l.problems, p) {
		l.problems = append(l.problems, p)
	}
}

func (l *linter) fail(format string, a ...any) { l.say(false, format, a...) }
func (l *linter) warn(format string, a ...any) { l.say(true, format, a...) }

// together checks the head and the conditions together.
func (l *linter) together() {
	if l.args && !l.permit && !l.guarded && !l.aboutCalls() {
		l.fail(`only tools/call, prompts/get and agent.send have arguments, so this forbid would refuse everything else, which has none: write action == Action::"tools/call" in its head, or ask context has args first`)
	}
	if !l.permit && l.programs && l.coversHandshakes() {
		l.warn(`this forbid reads facts of the program, which no handshake and no one-shot request has, so it also refuses to open a session: name what it is about, such as action == Action::"tools/call"`)
	}
	if l.permit && !l.narrowed && l.widensScopes() {
		l.warn("this permit also holds for tokens and OAuth callers whose scope says less: add unless { principal.scoped }, or name the principals that are meant")
	}
}

// aboutCalls reports whether the rule's head covers only actions with arguments.
func (l *linter) aboutCalls() bool {
	call := func(id types.String) bool { return policy.HasArguments(string(id)) }
	switch s := l.rule.Action.(type) {
	case ast.ScopeTypeEq:
		return call(s.Entity.ID)
	case ast.ScopeTypeIn:
		return call(s.Entity.ID)
	case ast.ScopeTypeInSet:
		return !slices.ContainsFunc(s.Entities, func(e types.EntityUID) bool { return !call(e.ID) })
	}
	switch s := l.rule.Resource.(type) {
	case ast.ScopeTypeEq:
		return s.Entity.Type == policy.TypeTool
	case ast.ScopeTypeIs:
		return s.Type == policy.TypeTool
	case ast.ScopeTypeIsIn:
		return s.Type == policy.TypeTool
	}
	return false
}

// coversHandshakes reports whether the head matches a handshake.
func (l *linter) coversHandshakes() bool {
	opens := func(e types.EntityUID) bool {
		return slices.Contains([]types.String{"initialize", "server/discover", "handshake", "session"}, e.ID)
	}
	switch s := l.rule.Action.(type) {
	case ast.ScopeTypeEq:
		return opens(s.Entity)
	case ast.ScopeTypeIn:
		return opens(s.Entity)
	case ast.ScopeTypeInSet:
		return slices.ContainsFunc(s.Entities, opens)
	}
	return !l.aboutCalls()
}

func (l *linter) widensScopes() bool {
	switch s := l.rule.Principal.(type) {
	case ast.ScopeTypeAll, ast.ScopeTypeIs:
		return true
	case ast.ScopeTypeIn:
		return s.Entity.ID == principal.KindToken || s.Entity.ID == principal.KindOAuth
	case ast.ScopeTypeIsIn:
		return s.Entity.ID == principal.KindToken || s.Entity.ID == principal.KindOAuth
	}
	return false
}

// head checks that each of the three parts of the head has entities of its own types.
func (l *linter) head() {
	l.part("principal", l.rule.Principal, []types.EntityType{policy.TypePrincipal}, []types.EntityType{policy.TypePrincipal, policy.TypeKind})
	l.part("action", l.rule.Action, []types.EntityType{policy.TypeAction}, []types.EntityType{policy.TypeAction})
	things := []types.EntityType{policy.TypeTool, policy.TypePrompt, policy.TypeResource, policy.TypeServer, policy.TypeDoorward}
	l.part("resource", l.rule.Resource, things, things)
}

// part checks one part: the types that it can have, and the types that it can be in.
func (l *linter) part(name string, scope ast.IsScopeNode, be, in []types.EntityType) {
	switch s := scope.(type) {
	case ast.ScopeTypeEq:
		l.one(name, s.Entity, be)
	case ast.ScopeTypeIn:
		l.one(name, s.Entity, in)
	case ast.ScopeTypeInSet:
		for _, e := range s.Entities {
			l.one(name, e, in)
		}
	case ast.ScopeTypeIs:
		l.is(name, s.Type, be)
	case ast.ScopeTypeIsIn:
		l.is(name, s.Type, be)
		l.one(name, s.Entity, in)
	}
}

func (l *linter) is(name string, t types.EntityType, be []types.EntityType) {
	if slices.Contains(entityTypes(), t) && !slices.Contains(be, t) {
		l.fail("the %s is never a %s; %s", name, t, oneOf("it is", be))
		return
	}
	l.entityType(t)
}

func (l *linter) one(name string, e types.EntityUID, want []types.EntityType) {
	if slices.Contains(entityTypes(), e.Type) && !slices.Contains(want, e.Type) {
		l.fail("the %s is never a %s; %s", name, e.Type, oneOf("it is", want))
		return
	}
	l.entity(e)
}

func entityTypes() []types.EntityType {
	return []types.EntityType{policy.TypePrincipal, policy.TypeKind, policy.TypeAction, policy.TypeServer, policy.TypeTool, policy.TypePrompt, policy.TypeResource, policy.TypeDoorward}
}

func (l *linter) entityType(t types.EntityType) {
	if !slices.Contains(entityTypes(), t) {
		l.fail("there is no type %s; %s", policy.Clip(string(t)), oneOf("there are", entityTypes()))
	}
}

// entity checks that such an entity can exist.
func (l *linter) entity(e types.EntityUID) {
	id := string(e.ID)
	server, name, slash := strings.Cut(id, "/")
	switch e.Type {
	case policy.TypePrincipal:
		if _, _, err := principal.Parse(id); err != nil {
			l.fail("no principal is called %s; %s", policy.Clip(id), spelling)
		}
	case policy.TypeKind:
		if !slices.Contains(kinds(), id) {
			l.fail("there is no kind of principal %s; %s", policy.Clip(id), oneOf("there are", kinds()))
		}
	case policy.TypeAction:
		l.action(id)
	case policy.TypeServer:
		if id == "" || slash {
			l.fail("no server is called %s; write the name from mcpServers", policy.Clip(id))
		} else {
			l.server(id)
		}
	case policy.TypeTool, policy.TypePrompt, policy.TypeResource:
		if server == "" || name == "" {
			l.fail("no %s is called %s; write %s::\"SERVER/NAME\"", strings.ToLower(string(e.Type)), policy.Clip(id), e.Type)
		} else {
			l.server(server)
		}
	case policy.TypeDoorward:
		if id != policy.Itself {
			l.fail("the only entity of this type is Doorward::\"doorward\"")
		}
	default:
		l.entityType(e.Type)
	}
}

// server warns of a name that is not configured: the rule then holds for nothing. It is not
// an error, because the server may be disabled.
func (l *linter) server(name string) {
	if _, ok := l.o.Servers[name]; !ok && name != policy.ServerAgent && name != policy.ServerInstructions {
		l.warn("no server %s is configured; the rule has no effect there", policy.Clip(name))
	}
}

// action warns of an action that Doorward does not know. Every method is an action, but a
// spelling mistake is more likely.
func (l *linter) action(id string) {
	if _, group := policy.Groups()[id]; !Known(id) && !group {
		l.warn("Doorward has no action %s; check that it is spelled like the method", policy.Clip(id))
	}
}

// Known reports whether Doorward knows an action by name, or by the prefix of a built-in server.
func Known(id string) bool {
	return slices.Contains(methods(), id) || strings.HasPrefix(id, policy.ServerAgent+".") || strings.HasPrefix(id, policy.ServerInstructions+".")
}

// methods returns the actions that Doorward knows by name.
func methods() []string {
	return []string{"initialize", "server/discover", "ping", policy.ActionCall, "tools/list", policy.ActionPrompt, "prompts/list", "resources/read", "resources/list",
		"resources/templates/list", "resources/subscribe", "resources/unsubscribe", policy.ActionComplete, "logging/setLevel", "subscriptions/listen",
		"tasks/get", "tasks/update", "tasks/list", "tasks/cancel", "tasks/result", "notifications/initialized", "notifications/cancelled", "notifications/progress",
		"notifications/roots/list_changed", policy.AskElicitation, policy.AskSampling, policy.AskRoots, "question", policy.ActionAdmin, policy.ActionApprove}
}

const spelling = "they are written uid:1000, token:NAME, loopback:uid=1000, loopback:unknown, oauth:ISSUER#SUBJECT, spawn:ID"

func kinds() []string {
	return []string{principal.KindUID, principal.KindToken, principal.KindLoopback, principal.KindOAuth, principal.KindSpawn}
}

func oneOf[T ~string](verb string, names []T) string {
	var all []string
	for _, n := range names {
		all = append(all, string(n))
	}
	return verb + " " + strings.Join(all, ", ")
}
