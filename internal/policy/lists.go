package policy

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// compileLists makes forbids of the servers' own lists. A list gives nothing
// by itself: it takes from what somebody may.
func compileLists(servers map[string]ServerRules) []*rule {
	var out []*rule
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		out = append(out, toolRules(name, servers[name].Tools)...)
		out = append(out, askRules(name, servers[name].Ask)...)
	}
	return out
}

// toolRules: one forbid for each denied pattern, and one for what no allowed
// pattern covers.
func toolRules(server string, l List) []*rule {
	var out []*rule
	prefix := "mcpServers." + server + ".doorward.tools."
	for i, pattern := range l.Deny {
		p := forbidCalls(server).When(likes(pattern))
		out = append(out, listRule(prefix+"deny["+strconv.Itoa(i)+"]", deniedByList, p))
	}
	if slices.Contains(l.Allow, "*") {
		return out
	}
	p := forbidCalls(server)
	if len(l.Allow) > 0 {
		p = p.Unless(anyOf(l.Allow))
	}
	return append(out, listRule(prefix+"allow", notOnList, p))
}

const (
	deniedByList = "denied by the server's list"
	notOnList    = "not on the server's list"
)

func forbidCalls(server string) *ast.Policy {
	return ast.Forbid().ActionEq(types.NewEntityUID(typeAction, actionCall)).ResourceIn(types.NewEntityUID(typeServer, types.String(server)))
}

// anyOf joins the patterns as a balanced tree: a list may be long, and a chain
// is as deep as it is long.
func anyOf(patterns []string) ast.Node {
	if len(patterns) == 1 {
		return likes(patterns[0])
	}
	half := len(patterns) / 2
	return anyOf(patterns[:half]).Or(anyOf(patterns[half:]))
}

// likes compares the resource's name with a pattern of ours, whose only
// character with a meaning is the star.
func likes(pattern string) ast.Node {
	name := ast.Resource().Access("name")
	if !strings.Contains(pattern, "*") {
		return name.Equal(ast.String(pattern))
	}
	return name.Like(like(pattern))
}

func like(pattern string) types.Pattern {
	var parts []any
	for i, literal := range strings.Split(pattern, "*") {
		if i > 0 {
			parts = append(parts, types.Wildcard{})
		}
		parts = append(parts, literal)
	}
	return types.NewPattern(parts...)
}

// questions are what a server may ask, by their words in the configuration.
func questions() []struct{ word, action string } {
	return []struct{ word, action string }{{"elicitation", AskElicitation}, {"sampling", AskSampling}, {"roots", AskRoots}}
}

// askRules name the questions themselves: there are three of them.
func askRules(server string, l List) []*rule {
	var out []*rule
	prefix := "mcpServers." + server + ".doorward.ask."
	for i, pattern := range l.Deny {
		if denied := asksLike([]string{pattern}, true); len(denied) > 0 {
			out = append(out, listRule(prefix+"deny["+strconv.Itoa(i)+"]", deniedByList, forbidAsks(server, denied)))
		}
	}
	if rest := asksLike(l.Allow, false); len(rest) > 0 {
		out = append(out, listRule(prefix+"allow", notOnList, forbidAsks(server, rest)))
	}
	return out
}

// asksLike are the questions of which it is so that some pattern covers them.
func asksLike(patterns []string, covered bool) []types.EntityUID {
	var out []types.EntityUID
	for _, q := range questions() {
		hit := slices.ContainsFunc(patterns, func(p string) bool { return like(p).Match(types.String(q.word)) })
		if hit == covered {
			out = append(out, types.NewEntityUID(typeAction, types.String(q.action)))
		}
	}
	return out
}

func forbidAsks(server string, asks []types.EntityUID) *ast.Policy {
	return ast.Forbid().ActionInSet(asks...).ResourceIn(types.NewEntityUID(typeServer, types.String(server)))
}

func listRule(name, reason string, p *ast.Policy) *rule {
	p.Annotations = []ast.AnnotationType{{Key: "id", Value: types.String(name)}, {Key: "reason", Value: types.String(reason)}}
	return newRule(name, "", reason, p)
}
