package spawn

import (
	"slices"
	"strings"
	"unicode"

	"github.com/doorward/doorward/internal/trust/principal"
)

// grants reports whether one word of a scope includes another. A text with a separator is
// several words, and no word includes it.
func grants(word, other string) bool {
	switch {
	case strings.ContainsFunc(other, separates):
		return false
	case word == other:
		return true
	}
	server, whole := strings.CutPrefix(word, "server:")
	tool, one := strings.CutPrefix(other, "tool:")
	return whole && one && strings.HasPrefix(tool, server+"/")
}

// within reports whether words include word. Every agent has messaging ("agent").
func within(word string, words []string) bool {
	return word == "agent" || slices.ContainsFunc(words, func(w string) bool { return grants(w, word) })
}

// common returns the words that both sides include: of a server and a tool on it, the
// tool.
func common(a, b []string) []string {
	all := []string{}
	for _, w := range a {
		if within(w, b) {
			all = append(all, w)
		}
	}
	for _, w := range b {
		if within(w, a) {
			all = append(all, w)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// separates reports whether r ends a word of a scope.
func separates(r rune) bool { return r == ',' || unicode.IsSpace(r) }

// bound returns the proved scope of a parent; false: it has none, and only policy bounds
// it.
func bound(parent *principal.Principal) ([]string, bool) {
	f, scoped := parent.Fact("scope")
	if !scoped {
		return nil, false
	}
	var words []string
	if f.Grade.MayAllow() {
		words = strings.FieldsFunc(f.Value, separates)
	}
	return words, true
}

// rights returns the rights of an agent: the intersection of its launcher's, its parent's
// and its request's. A requested word outside of the others is an error, not dropped.
// Policy for the parent is not evaluated here: it decides each act.
func (r *Request) rights(l *Launcher, parent *principal.Principal) ([]string, error) {
	words := slices.Clone(l.Rights)
	above, scoped := bound(parent)
	if r.RightsGiven || len(r.Rights) > 0 {
		for _, w := range r.Rights {
			if !within(w, l.Rights) || scoped && !within(w, above) {
				return nil, refused(codeRights, "the right %.80q exceeds those of launcher %s or of the caller", w, l.Name)
			}
		}
		words = common(words, r.Rights)
	}
	if scoped {
		words = common(words, above)
	}
	words = slices.DeleteFunc(words, func(w string) bool { return w == "agent" || w == "admin" || w == "approve" })
	return common(append(words, "agent"), append(words, "agent")), nil
}
