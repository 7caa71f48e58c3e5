package relay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/test/policytest"
)

// BenchmarkKnownLists measures what policy costs in a merged list of 50 known
// lists of 40 tools.
func BenchmarkKnownLists(b *testing.B) {
	rules := make(map[string]policy.ServerRules)
	var lists []*listing.Known
	for i := range 50 {
		server := fmt.Sprintf("s%d", i)
		rules[server] = policy.ServerRules{Tools: everyTool, Ask: elicitation}
		result := []byte(`{"tools":[`)
		for j := range 40 {
			result = fmt.Appendf(result, `{"name":"tool_%d","description":%s},`, j, rawjson.AppendQuote(nil, strings.Repeat("d", 900)))
		}
		result = append(result[:len(result)-1], `]}`...)
		kind, _ := listing.Of("tools/list")
		lists = append(lists, listing.Shelve(server, kind, result, false, false))
	}
	g := gate.New(policytest.New(b, 1000, rules), nil, gate.Limits{})
	who := principal.New("uid:1000")
	b.ReportAllocs()
	for b.Loop() {
		for i, l := range lists {
			if shown := l.Shown(g, policy.Request{Who: who, Action: "tools/call", Server: fmt.Sprintf("s%d", i), Listing: true}); len(shown) < 30_000 {
				b.Fatal(len(shown))
			}
		}
	}
}
