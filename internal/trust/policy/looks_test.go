package policy

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"

	"github.com/doorward/doorward/internal/trust/principal"
)

// disguises write a name in another way that a person, or a server that folds
// names, takes for the same.
var disguises = map[string]func(r *rand.Rand, name string) string{
	"case": func(r *rand.Rand, name string) string {
		return each(name, func(c rune) string {
			if r.IntN(2) == 0 {
				return string(unicode.ToUpper(c))
			}
			return string(c)
		})
	},
	"white space": func(r *rand.Rand, name string) string {
		return pick(r, " ", "\t", "\n", "\u00a0", "\u3000", "\u2003", "") + name + pick(r, " ", "\r\n", "\u00a0", "\u202f", "\x00")
	},
	"invisible": func(r *rand.Rand, name string) string {
		return each(name, func(c rune) string {
			return string(c) + pick(r, "\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\ufe0f", "\u3164", "\u115f", "\U000e0061", "\u202e", "")
		})
	},
	"full width": func(_ *rand.Rand, name string) string {
		return each(name, func(c rune) string {
			if c > ' ' && c < 0x7f {
				return string(c - '!' + 0xff01)
			}
			return string(c)
		})
	},
	"mathematical": func(_ *rand.Rand, name string) string {
		return each(name, func(c rune) string {
			if c >= 'a' && c <= 'z' {
				return string(c - 'a' + 0x1d41a)
			}
			return string(c)
		})
	},
	"other scripts": func(r *rand.Rand, name string) string {
		return strings.NewReplacer("a", pick(r, "а", "α", "ɑ"), "e", pick(r, "е", "ε"), "o", pick(r, "о", "ο", "0"), "p", "р", "c", "с", "i", "і", "t", pick(r, "т", "τ")).Replace(name)
	},
	"accents": func(r *rand.Rand, name string) string {
		return each(name, func(c rune) string { return string(c) + pick(r, "\u0301", "\u0308", "") })
	},
	"strokes": func(r *rand.Rand, name string) string { return strings.ReplaceAll(name, "l", pick(r, "I", "1", "|")) },
}

func each(s string, f func(rune) string) string {
	var b strings.Builder
	for _, c := range s {
		b.WriteString(f(c))
	}
	return b.String()
}

func pick(r *rand.Rand, of ...string) string { return of[r.IntN(len(of))] }

// TestWhatLooksDeniedIsDenied: a name that a pattern denies is denied under every two
// disguises, and an allow list allows exact names alone.
func TestWhatLooksDeniedIsDenied(t *testing.T) {
	t.Parallel()
	denied := map[string]string{"delete_it": "delete_it", "delete_*": "delete_all", "*_secret": "read_secret", "drop*table": "drop_the_table", "Purge": "Purge"}
	everything := List{Allow: []string{"*"}}
	for pattern := range denied {
		everything.Deny = append(everything.Deny, pattern)
	}
	only := List{}
	for _, name := range denied {
		only.Allow = append(only.Allow, name)
	}
	s := New(1000, map[string]ServerRules{"deny": {Tools: everything}, "allow": {Tools: only}})
	owner := principal.New("uid:1000")
	ask := func(server, name string) Decision {
		return s.Decide(Request{Who: owner, Action: "tools/call", Server: server, Name: name})
	}
	r := rand.New(rand.NewPCG(1, 7))
	for pattern, name := range denied {
		for one, first := range disguises {
			for other, second := range disguises {
				for range 5 {
					worn := second(r, first(r, name))
					if d := ask("deny", worn); d.Allow || !strings.Contains(d.Rule, ".deny[") {
						t.Errorf("%s and %s of %q (%+q) is not denied by %s: %+v", one, other, name, worn, pattern, d)
					}
					if d := ask("allow", worn); d.Allow && worn != name {
						t.Errorf("%s and %s of %q (%+q) is allowed by an exact list: %+v", one, other, name, worn, d)
					}
				}
			}
		}
		if !ask("allow", name).Allow || ask("deny", name).Allow {
			t.Errorf("%s itself", name)
		}
	}
	for _, name := range []string{"create_it", "delete", "undelete", "deleted_items_list", "read_secrets", "drop_the_tables", "list", "surge", "削除", ""} {
		if d := ask("deny", name); !d.Allow {
			t.Errorf("%q looks like none of them: %+v", name, d)
		}
	}
}

// TestDeniesAgreesWithTheDecisions: Denies, which does not use Cedar, agrees with the
// decision of the rule that a pattern is compiled to.
func TestDeniesAgreesWithTheDecisions(t *testing.T) {
	t.Parallel()
	names := []string{"read_note", "delete_note", "Purge", ""}
	for _, p := range []string{"delete_*", "purge", "delet_note", "drop_*", "*", "read_note ", "\u202e*", "*note", "*_*", ""} {
		s := New(1000, map[string]ServerRules{"s": {Tools: List{Allow: []string{"*"}, Deny: []string{p}}}})
		for _, name := range names {
			denied := !s.Decide(Request{Who: principal.New("uid:1000"), Action: "tools/call", Server: "s", Name: name}).Allow
			if got := Denies(p, name); got != denied {
				t.Errorf("%q denies %q: %v, and is said to: %v", p, name, denied, got)
			}
		}
	}
}

// TestWhatAPatternDenies: a pattern of invisible characters denies exactly those, and an
// empty pattern only the empty name.
func TestWhatAPatternDenies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, name string
		denied        bool
	}{
		{"delete_*", "delete_note", true}, {"delete_*", "DELETE_note", true}, {"delete_*", "de\u200blete_note", true}, {"delete_*", "undelete_note", false},
		{"\u202e*", "read_note", false}, {"\u202e*", "\u202eread_note", true}, {"\u200b", "", false}, {"\u200b", "\u200b", true},
		{"", "", true}, {"", "\u200b", false}, {"", "a", false}, {"*", "", true}, {"*", "\u200b", true}, {"**", "a", true}, {"a*\u200b", "a", false},
	} {
		if got := Denies(c.pattern, c.name); got != c.denied {
			t.Errorf("%q denies %q: %v", c.pattern, c.name, got)
		}
	}
}
