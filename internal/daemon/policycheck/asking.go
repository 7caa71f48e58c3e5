package policycheck

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/visible"
)

// instructionsRead can wait for the operator only in MCP requests.
const instructionsRead = "instructions.read"

// canHold returns the actions that wait for the operator if a permit with @ask covers them.
// For agent.deliver the message waits in the mailbox.
func canHold() []string {
	return []string{policy.ActionCall, policy.ActionPrompt, "resources/read", policy.ActionComplete,
		policy.AgentSend, policy.AgentDeliver, "agent.spawn", instructionsRead, "instructions.render"}
}

// CanHold reports whether a call of this action waits for the operator if a permit with @ask
// covers it.
func CanHold(action string) bool {
	return action != policy.AgentDeliver && slices.Contains(canHold(), action)
}

// asking checks @ask. It is allowed on permits only, and only for actions that can wait: for
// others the operator would never be asked.
func (l *linter) asking() {
	reason, given := policy.Annotation(l.rule, "ask")
	switch {
	case !given:
		return
	case !l.permit:
		l.fail("@ask has an effect only on a permit: remove it from this forbid, or write permit")
	case len(reason) > 256 || !visible.AllPrintable(reason):
		l.fail("@ask must be one line of at most 256 bytes without control characters; shorten it")
	}
	if !l.permit {
		return
	}
	named := l.actions()
	for _, name := range named {
		if !slices.Contains(canHold(), name) {
			l.fail("%s cannot wait for the operator; @ask is for %s: name those, or remove it", policy.Clip(name), strings.Join(canHold(), ", "))
		}
	}
	switch {
	case named == nil && l.coversDoorward():
		l.warn(`this @ask also covers actions that cannot wait for the operator, such as agent.read and agent.register, and refuses them: name the actions, as in action == Action::"tools/call"`)
	case slices.Contains(named, instructionsRead):
		l.warn("instructions.read can wait for the operator only in MCP requests: under /auth/, and in the instructions that a client gets when it connects, it is refused")
	}
}

// actions returns the actions that the head names; nil: none.
func (l *linter) actions() (names []string) {
	switch s := l.rule.Action.(type) {
	case ast.ScopeTypeEq:
		return []string{string(s.Entity.ID)}
	case ast.ScopeTypeIn:
		return []string{string(s.Entity.ID)}
	case ast.ScopeTypeInSet:
		for _, e := range s.Entities {
			names = append(names, string(e.ID))
		}
	}
	return names
}

// coversDoorward reports whether the head covers acts that concern no server.
func (l *linter) coversDoorward() bool {
	doorward := func(t types.EntityType) bool { return t == policy.TypeDoorward }
	switch s := l.rule.Resource.(type) {
	case ast.ScopeTypeAll:
		return true
	case ast.ScopeTypeEq:
		return doorward(s.Entity.Type)
	case ast.ScopeTypeIs:
		return doorward(s.Type)
	}
	return false
}
