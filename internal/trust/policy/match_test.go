package policy

import (
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go/types"
)

// matches compares a name with a pattern of a list, as Cedar will.
func matches(glob, name string) bool { return like(glob).Match(types.String(name)) }

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		glob, name string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "", false}, {"a", "a", true}, {"a", "ab", false}, {"a", "A", false},
		{"*", "", true}, {"*", "anything\n at all", true}, {"**", "x", true},
		{"a*", "a", true}, {"a*", "ab", true}, {"a*", "ba", false},
		{"*a", "a", true}, {"*a", "ba", true}, {"*a", "ab", false},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"a*a", "aba", true},
		{"a*b*c", "abc", true}, {"a*b*c", "axbxc", true}, {"a*b*c", "acb", false}, {"a*b*c", "abcb", false},
		{"*ab*ab*", "abab", true}, {"*ab*ab*", "aab", false},
		{"*aab", "aaab", true}, {"[a]", "a", false}, {"?", "a", false}, {"a.c", "abc", false},
		{"read_*", "read_", true}, {"read_*", "xread_", false},
	} {
		if got := matches(c.glob, c.name); got != c.want {
			t.Errorf("matches(%q, %q) = %v", c.glob, c.name, got)
		}
	}
}

// A pattern with many stars and a name that almost matches take no exponential time:
// the test would not end.
func TestMatchDoesNotExplode(t *testing.T) {
	t.Parallel()
	if matches(strings.Repeat("*a", 1000)+"b", strings.Repeat("a", 100_000)) {
		t.Error("matched")
	}
}

// reference matches a pattern by trying every possibility.
func reference(glob, name string) bool {
	if glob == "" {
		return name == ""
	}
	if glob[0] == '*' {
		for i := 0; i <= len(name); i++ {
			if reference(glob[1:], name[i:]) {
				return true
			}
		}
		return false
	}
	return name != "" && glob[0] == name[0] && reference(glob[1:], name[1:])
}

func FuzzMatch(f *testing.F) {
	for _, s := range [][2]string{{"a*b*c", "axxbxxc"}, {"*ab*ab*", "aabbab"}, {"**", ""}, {"a*a", "a"}, {"*é", "é"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, glob, name string) {
		if len(name) > 24 || strings.Count(glob, "*") > 5 || len(glob) > 24 {
			return // the reference is exponential
		}
		if got, want := matches(glob, name), reference(glob, name); got != want {
			t.Errorf("matches(%q, %q) = %v, want %v", glob, name, got, want)
		}
	})
}
