package pin

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestWhatAnyConnectionWithholdsIsShown: connections open, get one offer or
// another, and close, at random. Each item that one of them cannot use is on the
// operator's list. When all are closed and one is left that offers what is
// approved, the list is empty.
func TestWhatAnyConnectionWithholdsIsShown(t *testing.T) {
	t.Parallel()
	lists := []string{tool("a=1", "b=1"), tool("a=2", "b=1"), tool("a=3", "b=1"), tool("a=1", "b=1", "c=1"), tool("a=1", "b=2", "c=2"), tool("a=1")}
	greetings := []string{`"be kind"`, `"be evil"`, `"be odd"`}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 8))
		s := open(t, t.TempDir())
		g := s.auto("s")
		g.Meet("legacy", []byte(`{"tools":{}}`), []byte(greetings[0]))
		g.Judge(Asker{Era: "legacy"}, Tools, []byte(lists[0]))
		type connection struct {
			*View
			list, greeting string
		}
		var open []*connection
		look := func(c *connection) (held []string) {
			if c.Instructions("legacy", []byte(c.greeting)) == nil {
				held = append(held, "instructions:legacy")
			}
			v := c.Judge(Asker{Era: "legacy"}, Tools, []byte(c.list))
			for name := range v.held {
				held = append(held, "tool:"+name)
			}
			return held
		}
		for step := range 30 {
			switch n := r.IntN(4); {
			case n < 2 || len(open) == 0:
				c := &connection{g.View(), lists[r.IntN(len(lists))], greetings[r.IntN(len(greetings))]}
				c.Meet("legacy", []byte(`{"tools":{}}`), []byte(c.greeting))
				open = append(open, c)
			case n == 2:
				c := open[r.IntN(len(open))]
				c.list = lists[r.IntN(len(lists))]
			default:
				i := r.IntN(len(open))
				open[i].Close()
				open = append(open[:i], open[i+1:]...)
			}
			for _, c := range open {
				look(c)
			}
			shown := " " + strings.Join(s.Items("s"), " ") + " "
			for i, c := range open {
				for _, item := range look(c) {
					if !strings.Contains(shown, " "+item+" ") {
						t.Fatalf("seed %d, step %d: connection %d cannot use %s, shown is%s", seed, step, i, item, shown)
					}
				}
			}
			if r.IntN(8) == 0 {
				s.approveAll("s")
			}
		}
		for _, c := range open {
			c.Close()
		}
		last := &connection{g.View(), "", ""}
		approved := s.records["s"].definitions()
		last.greeting = string(approved["instructions:legacy"])
		var defs []string
		for item, def := range approved {
			if strings.HasPrefix(item, "tool:") {
				defs = append(defs, string(def))
			}
		}
		last.list = "[" + strings.Join(defs, ",") + "]"
		look(last)
		want(t, fmt.Sprintf("seed %d: all others are gone, and the last offers what is approved", seed), s.held("s"), "")
	}
}

func tool(pairs ...string) string { return string(tools(pairs...)) }

// TestAnOutdatedListOfAConnectionOpensNothing: the list of a connection opens an item that is
// withheld on another one only until the server says that the list has changed. What a
// connection withholds stays withheld.
func TestAnOutdatedListOfAConnectionOpensNothing(t *testing.T) {
	t.Parallel()
	for k := range KindCount {
		kind, key := kindWords[k], map[Kind]string{Tools: "name", Prompts: "name", Resources: "uri", Templates: "uriTemplate", Skills: "uri"}[k]
		list := func(word string) []byte { return fmt.Appendf(nil, `[{%q:"x:y","description":%q}]`, key, word) }
		s := open(t, t.TempDir())
		g := s.auto("s")
		old, other := g.View(), g.View()
		old.Judge(Asker{}, k, list("before"))
		other.Judge(Asker{}, k, list("after"))
		shut := func(v *View) bool { return v.Shut(k, "x:y") != "" }
		if shut(old) || !shut(other) {
			t.Errorf("%s: shut %v and %v", kind.item, shut(old), shut(other))
		}
		old.Outdated(k)
		other.Outdated(k)
		if !shut(old) || !shut(other) {
			t.Errorf("%s, outdated: shut %v and %v", kind.item, shut(old), shut(other))
		}
		if old.Judge(Asker{}, k, list("before")); shut(old) || !shut(other) {
			t.Errorf("%s, listed again: shut %v and %v", kind.item, shut(old), shut(other))
		}
	}
}
