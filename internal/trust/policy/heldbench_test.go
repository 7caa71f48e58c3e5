package policy_test

import (
	"testing"

	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// BenchmarkRulesThatHoldOtherCalls is a decision from the cache, without and with tools.ask
// for other tools.
func BenchmarkRulesThatHoldOtherCalls(b *testing.B) {
	who := principal.New("uid:1000", principal.Fact{Name: "uid", Value: "1000", Grade: principal.Attested}).WithLocal()
	for name, held := range map[string][]string{"none": nil, "8": otherTools()} {
		b.Run(name, func(b *testing.B) {
			set := policy.New(1000, map[string]policy.ServerRules{"s": {Tools: policy.List{Allow: []string{"*"}}, Held: held}})
			b.ReportAllocs()
			for b.Loop() {
				if d := set.Decide(policy.Request{Who: who, Action: "tools/call", Server: "s", Name: "echo", Holds: true}); !d.Allow || d.Ask.Rule != "" {
					b.Fatalf("%+v", d)
				}
			}
		})
	}
}
