package policy

// The servers' own lists as rules. Invariant: a list never grants a right.

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/doorward/doorward/internal/trust/lookalike"
)

// compileLists returns the forbids that the servers' own lists are compiled to.
func compileLists(servers map[string]ServerRules) []*rule {
	var out []*rule
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		out = append(out, toolRules(name, servers[name].Tools)...)
		out = append(out, askRules(name, servers[name].Ask)...)
	}
	return out
}

// toolRules returns one forbid for each denied pattern, and one for the tools that no
// allowed pattern covers.
func toolRules(server string, l List) []*rule {
	var out []*rule
	prefix := "mcpServers." + server + ".doorward.tools."
	for i, pattern := range l.Deny {
		p := forbidCalls(server).When(looksLike(pattern))
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
	return ast.Forbid().ActionEq(types.NewEntityUID(TypeAction, ActionCall)).ResourceIn(types.NewEntityUID(TypeServer, types.String(server)))
}

// anyOf joins the patterns with "or" as a balanced tree, because Cedar recurses into the
// expression, and a list may be long.
func anyOf(patterns []string) ast.Node {
	if len(patterns) == 1 {
		return likes(patterns[0])
	}
	half := len(patterns) / 2
	return anyOf(patterns[:half]).Or(anyOf(patterns[half:]))
}

// likes returns the condition that the resource's name matches a pattern of a list.
func likes(pattern string) ast.Node {
	name := ast.Resource().Access("name")
	if !strings.Contains(pattern, "*") {
		return name.Equal(ast.String(pattern))
	}
	return name.Like(like(pattern))
}

// like returns a pattern of a list. The star is its only special character.
func like(pattern string) types.Pattern {
	return likeIn(pattern, func(literal string) string { return literal })
}

// likeIn returns a pattern with form applied to its literal parts.
func likeIn(pattern string, form func(literal string) string) types.Pattern {
	var parts []any
	for i, literal := range strings.Split(pattern, "*") {
		if i > 0 {
			parts = append(parts, types.Wildcard{})
		}
		parts = append(parts, form(literal))
	}
	return types.NewPattern(parts...)
}

// looksLike is likes for a pattern that denies: it also matches a name that looks like a
// denied one, since a server may treat the two as the same.
func looksLike(pattern string) ast.Node {
	out, forms := likes(pattern), [...]types.String{attrFolded, attrStroked}
	for i, p := range looks(pattern) {
		out = out.Or(ast.Resource().Access(forms[i]).Like(p))
	}
	return out
}

// looks returns the patterns for the two forms of a name; nil: the pattern is compared
// with the name alone.
func looks(pattern string) (all []types.Pattern) {
	if !hasLooks(pattern) {
		return nil
	}
	for i := range 2 {
		all = append(all, likeIn(pattern, func(literal string) string { return lookalike.Shown(literal)[i] }))
	}
	return all
}

// hasLooks reports whether a pattern can be compared by appearance. A pattern with
// invisible characters is compared exactly: without them it would match more names than
// were meant.
func hasLooks(pattern string) bool {
	if strings.Trim(pattern, "*") == "" || lookalike.Shown(pattern) != lookalike.Forms(pattern) {
		return false
	}
	return !slices.ContainsFunc(strings.Split(pattern, "*"), func(literal string) bool {
		return literal != "" && lookalike.Shown(literal)[0] == ""
	})
}

// Denied returns the deny list of a server's tools.
func (s *Set) Denied(server string) []string { return s.lists[server].Tools.Deny }

// Denies reports whether a pattern of a deny list denies name. It gives the same answer
// as the condition of looksLike, without Cedar.
func Denies(pattern, name string) bool {
	if like(pattern).Match(types.String(name)) {
		return true
	}
	forms := lookalike.Shown(name)
	for i, p := range looks(pattern) {
		if p.Match(types.String(forms[i])) {
			return true
		}
	}
	return false
}

// questions returns the kinds of questions of a server, with their words in the
// configuration and their actions.
func questions() []struct{ word, action string } {
	return []struct{ word, action string }{{"elicitation", AskElicitation}, {"sampling", AskSampling}, {"roots", AskRoots}}
}

// askRules returns the forbids for the questions of a server. They name the actions
// instead of patterns, because there are only three.
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

// asksLike returns the questions that some pattern covers, or, if covered is false, those
// that no pattern covers.
func asksLike(patterns []string, covered bool) []types.EntityUID {
	var out []types.EntityUID
	for _, q := range questions() {
		hit := slices.ContainsFunc(patterns, func(p string) bool { return like(p).Match(types.String(q.word)) })
		if hit == covered {
			out = append(out, types.NewEntityUID(TypeAction, types.String(q.action)))
		}
	}
	return out
}

func forbidAsks(server string, asks []types.EntityUID) *ast.Policy {
	return ast.Forbid().ActionInSet(asks...).ResourceIn(types.NewEntityUID(TypeServer, types.String(server)))
}

func listRule(name, reason string, p *ast.Policy) *rule {
	p.Annotations = []ast.AnnotationType{{Key: "id", Value: types.String(name)}, {Key: "reason", Value: types.String(reason)}}
	return newRule(name, "", reason, p)
}
