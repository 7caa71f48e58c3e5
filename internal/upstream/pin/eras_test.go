package pin

import (
	"fmt"
	"testing"
)

// offer is all that a server says in one connection.
type offer struct {
	capabilities string
	instructions string
	lists        [KindCount]string
}

// known is an offer with an entry of every kind.
var known = offer{
	capabilities: `{"tools":{},"prompts":{},"resources":{}}`,
	instructions: `"be kind"`,
	lists: [KindCount]string{
		Tools:     `[{"name":"t","description":"d","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]`,
		Prompts:   `[{"name":"p","description":"d","arguments":[{"name":"a"}]}]`,
		Resources: `[{"name":"r","uri":"x://r","mimeType":"text/plain"}]`,
		Templates: `[{"name":"m","uriTemplate":"x://{m}"}]`,
	},
}

// changes are what can differ: each gives another offer and the item that is
// withheld for it.
func changes() map[string]struct {
	offer
	held string
} {
	out := make(map[string]struct {
		offer
		held string
	})
	add := func(name, held string, change func(*offer)) {
		o := known
		change(&o)
		out[name] = struct {
			offer
			held string
		}{o, held}
	}
	add("instructions changed", "instructions", func(o *offer) { o.instructions = `"be evil"` })
	for k, fields := range map[Kind][]string{
		Tools: {`{"name":"t","description":"evil","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`,
			`{"name":"t","description":"d","inputSchema":{"type":"object","properties":{"x":{}}},"annotations":{"readOnlyHint":true}}`,
			`{"name":"t","description":"d","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":false}}`,
			`{"name":"t","title":"evil","description":"d","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`,
			`{"name":"t","description":"d","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"unknown":1}`},
		Prompts:   {`{"name":"p","description":"evil","arguments":[{"name":"a"}]}`, `{"name":"p","description":"d","arguments":[]}`},
		Resources: {`{"name":"evil","uri":"x://r","mimeType":"text/plain"}`, `{"name":"r","uri":"x://r","mimeType":"text/html"}`},
		Templates: {`{"name":"evil","uriTemplate":"x://{m}"}`},
	} {
		for i, entry := range fields {
			add(fmt.Sprintf("%s changed %d", kindWords[k].settled, i), k.key(nameOf[k]), func(o *offer) { o.lists[k] = "[" + entry + "]" })
		}
	}
	for k, entry := range map[Kind]string{Tools: `{"name":"new","inputSchema":{"type":"object"}}`, Prompts: `{"name":"new"}`,
		Resources: `{"name":"n","uri":"new"}`, Templates: `{"name":"n","uriTemplate":"new"}`} {
		add(kindWords[k].settled+" added", k.key("new"), func(o *offer) { o.lists[k] = o.lists[k][:len(o.lists[k])-1] + "," + entry + "]" })
	}
	return out
}

var nameOf = map[Kind]string{Tools: "t", Prompts: "p", Resources: "x://r", Templates: "x://{m}"}

// shown is what clients of an era get to see of an offer.
func (o offer) shown(g *Guard, a Asker) string {
	var text []byte
	if o.instructions != "" {
		text = []byte(o.instructions)
	}
	g.Meet(a.Era, []byte(o.capabilities), text)
	out := string(g.Instructions(a.Era, text))
	for k := range KindCount {
		if o.lists[k] != "" {
			list, _ := g.Judge(a, k, []byte(o.lists[k])).Show([]byte(o.lists[k]), true)
			out += "\n" + string(list)
		}
	}
	return out
}

// TestWhatDiffersIsAChangeInEveryEra: for each pair of eras, each field of what is
// pinned and each kind of client, also after a restart: what differs is withheld
// until it is approved, and nothing else is.
func TestWhatDiffersIsAChangeInEveryEra(t *testing.T) {
	t.Parallel()
	for _, first := range eras {
		for _, then := range eras {
			for name, c := range changes() {
				for _, client := range []string{"", "sampling"} {
					if client != "" && first == then {
						continue // a client of another sort may be offered more: see TestFirstUseIsForClientsThatDeclareTheSame
					}
					t.Run(first+" to "+then+"/"+name+"/"+client, func(t *testing.T) {
						t.Parallel()
						dir := t.TempDir()
						known.shown(open(t, dir).auto("s"), Asker{Era: first})
						s := open(t, dir)
						g := s.auto("s")
						a := Asker{Era: then, Client: client}
						all := c.shown(g, a)
						item := c.held
						if item == itemInstructions {
							item = instructionsOf(then)
						}
						if got := s.held("s"); got != item+"=changed" && got != item+"=new" {
							t.Errorf("withheld: %q, want %s alone", got, item)
						}
						if c.shown(g, a) != all {
							t.Error("a second look shows something else")
						}
						s.approveAll("s")
						if now := c.shown(g, a); len(now) <= len(all) || s.held("s") != "" {
							t.Errorf("approved: %q, withheld %q", now, s.held("s"))
						}
					})
				}
			}
		}
	}
}

// TestTheSameOfferIsNoChangeInAnyEra: a server that offers the same in another era
// needs no approval.
func TestTheSameOfferIsNoChangeInAnyEra(t *testing.T) {
	t.Parallel()
	for _, first := range eras {
		for _, then := range eras {
			s := open(t, t.TempDir())
			g := s.auto("s")
			want(t, first+" to "+then, known.shown(g, Asker{Era: then}), known.shown(g, Asker{Era: first}))
			want(t, first+" to "+then, s.held("s"), "")
		}
	}
}

// TestAKindThatCameWithAnEraIsNew: prompts, resources or instructions that a
// server did not have at first are withheld when it has them in the other era.
func TestAKindThatCameWithAnEraIsNew(t *testing.T) {
	t.Parallel()
	for _, first := range eras {
		for _, then := range eras {
			for what, hidden := range map[string]offer{
				"prompts":      {`{"tools":{},"resources":{}}`, known.instructions, [KindCount]string{Tools: known.lists[Tools], Resources: known.lists[Resources], Templates: known.lists[Templates]}},
				"resources":    {`{"tools":{},"prompts":{}}`, known.instructions, [KindCount]string{Tools: known.lists[Tools], Prompts: known.lists[Prompts]}},
				"instructions": {known.capabilities, "", known.lists},
			} {
				s := open(t, t.TempDir())
				g := s.auto("s")
				hidden.shown(g, Asker{Era: first})
				known.shown(g, Asker{Era: then})
				expected := map[string]string{"prompts": "prompt:p=new", "resources": "resource:x://r=new template:x://{m}=new", "instructions": instructionsOf(then) + "=new"}[what]
				want(t, first+" to "+then+": "+what, s.held("s"), expected)
			}
		}
	}
}
