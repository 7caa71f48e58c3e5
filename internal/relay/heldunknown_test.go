package relay

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// A caller that is not the owner cannot tell a held tool that pinning withholds from one that does
// not exist: not when it is held, denied, or approved. The operator is told that the tool is withheld.
func TestAHeldToolThatIsWithheldLooksUnknown(t *testing.T) {
	t.Parallel()
	numbers := regexp.MustCompile(`\d+`)
	for _, pattern := range []string{"*", "p*", "@writes", "@destructive"} {
		for _, era := range []string{"legacy", "modern"} {
			for _, route := range []string{"/mcp/s", "/mcp"} {
				t.Run(fmt.Sprint(pattern, era, route), func(t *testing.T) {
					t.Parallel()
					s, book, d := web(t, "s", era), shelf(t), &counter{t: t}
					list := func(word string) {
						s.setList("tools/list", `{"tools":[{"name":"pay","description":"`+word+`","annotations":{"readOnlyHint":true,"destructiveHint":false}}]}`)
					}
					s.serve = func(q *query) {
						if !strings.HasPrefix(q.Method, "tools/call") {
							q.result(`{}`)
							return
						}
						q.fail(-32602, "Unknown tool: "+q.name())
					}
					list("first")
					h := build(t, []Server{s.server(pinnedBy(book, false))}, withCounter(d, "s", "", time.Millisecond), func(h *house, o *Options) {
						h.rules["s"] = policy.ServerRules{Tools: everyTool, Ask: elicitation, Held: []string{pattern}}
						o.Owner = "uid:1000"
					})
					c := h.legacy(route, "token:bob", `{}`)
					c.call("tools/list", "")
					list("second")
					c.call("tools/list", "")
					call := func(name string) string {
						if route == "/mcp" {
							return c.tool("s__"+name, "")
						}
						return c.tool(name, "")
					}
					same := func(what string) {
						t.Helper()
						withheld, unknown := call("pay"), call("pey")
						plain := func(s string) string {
							return numbers.ReplaceAllString(strings.ReplaceAll(s, "pey", "pay"), "n")
						}
						equal(t, what, plain(withheld), plain(unknown))
					}
					same("held")
					all := d.queue.Pending()
					equal(t, "questions", fmt.Sprint(len(all)), "2")
					equal(t, "told of the withheld one", fmt.Sprint(strings.Contains(fmt.Sprint(all[0].Notes), noteWithheld), strings.Contains(fmt.Sprint(all[1].Notes), noteWithheld)), "true false")
					equal(t, "notes of both", fmt.Sprint(len(all[0].Notes), len(all[1].Notes)), "2 1")
					settle := func(v approval.Verdict) {
						for _, q := range d.queue.Pending() {
							if err := d.queue.Settle(principal.New("uid:1000"), q.N, "", v); err != nil {
								t.Fatal(err)
							}
						}
					}
					settle(approval.Verdict{Why: "no"})
					same("denied")
					same("held again")
					settle(approval.Verdict{Approve: true})
					same("approved")
				})
			}
		}
	}
}

// Held calls are bounded from the time at which their server is asked for its tools: those of one
// caller leave room for another, also at a server that does not answer.
func TestCallsThatAreLookedAtAreBounded(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "legacy")
	s.setList("tools/list", "")
	release := make(chan struct{})
	s.serve = func(q *query) { <-release; q.result(`{"tools":[]}`) }
	d := &counter{t: t}
	h := build(t, []Server{s.server(pinnedBy(shelf(t), false))}, withCounter(d, "s", "", time.Millisecond))
	c := h.legacy("/mcp/s", "token:bob", `{}`)
	other := h.legacy("/mcp/s", "token:eve", `{}`)
	var all sync.WaitGroup
	defer all.Wait()
	defer close(release)
	answers := make(chan string, 150)
	for i := range cap(answers) {
		all.Go(func() { answers <- c.call("tools/call", fmt.Sprintf(`{"name":"t","arguments":{"i":%d}}`, i)) })
	}
	for range cap(answers) - 100 { // the others are looked at, and then wait
		equal(t, "a call too many", code(<-answers), fmt.Sprint(gate.CodeUnavailable))
	}
	contains(t, "another caller", other.tool("t", ""), `"pending"`)
}
