package authn

import (
	"slices"
	"strings"
)

// scopes holds the words that each scope of the issuer grants. Scopes have no order;
// the union of their words counts.
type scopes struct {
	grants map[string][]string
	names  []string // sorted
	narrow []string // sorted by width, the narrowest first
}

func newScopes(grants map[string][]string) scopes {
	s := scopes{grants: make(map[string][]string, len(grants))}
	for name, words := range grants {
		s.grants[name] = slices.Clone(words)
		s.names = append(s.names, name)
	}
	slices.Sort(s.names)
	s.narrow = slices.Clone(s.names)
	slices.SortStableFunc(s.narrow, func(a, b string) int { return s.width(a) - s.width(b) })
	return s
}

// width orders scopes by how much they grant: a tool counts less than a server, and the
// administration counts most.
func (s *scopes) width(name string) int {
	sum := 0
	for _, w := range s.grants[name] {
		switch {
		case w == wordAdmin:
			sum += 1 << 20
		case strings.HasPrefix(w, "tool:"):
			sum++
		default:
			sum += 1 << 10
		}
	}
	return sum
}

// Words of a scope that take no value.
const (
	wordAgent        = "agent"
	wordInstructions = "instructions"
	wordAdmin        = "admin"
)

// words returns the union of the words that the scopes grant, limited to the named
// servers unless servers is nil.
func (s *scopes) words(scopes, servers []string) string {
	var out []string
	for _, name := range scopes {
		for _, w := range s.grants[name] {
			if servers == nil || slices.Contains(servers, serverOf(w)) {
				out = append(out, w)
			}
		}
	}
	return strings.Join(sortedOnce(out), ",")
}

// serverOf returns the server that a word is about; empty for the administration.
func serverOf(word string) string {
	kind, rest, _ := strings.Cut(word, ":")
	switch kind {
	case "server":
		return rest
	case "tool":
		server, _, _ := strings.Cut(rest, "/")
		return server
	case wordAgent, wordInstructions:
		return kind
	}
	return ""
}
