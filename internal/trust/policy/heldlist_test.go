package policy_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// heldBy is the first entry of tools.ask that covers the name or the claims of a tool, by
// the description and not by the code under test; -1: none.
func heldBy(held []string, name string, claims policy.Claims) int {
	for i, p := range held {
		switch p {
		case policy.HeldDestructive:
			if !claims.Harmless {
				return i
			}
		case policy.HeldWrites:
			if !claims.ReadOnly {
				return i
			}
		default:
			if regexp.MustCompile("^" + strings.ReplaceAll(p, "*", ".*") + "$").MatchString(name) {
				return i
			}
		}
	}
	return -1
}

// TestTheListHoldsTheSameWhenItIsAskedAgain: generated lists, names and claims get the
// answer of heldBy, the first time and from the cache, also where the claims have changed
// in between.
func TestTheListHoldsTheSameWhenItIsAskedAgain(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	text := func(letters string, most int) string {
		b := make([]byte, 1+r.IntN(most))
		for i := range b {
			b[i] = letters[r.IntN(len(letters))]
		}
		return string(b)
	}
	who := principal.New("uid:1000", principal.Fact{Name: "uid", Value: "1000", Grade: principal.Attested}).WithLocal()
	for range 200 {
		var held []string
		for range r.IntN(5) {
			held = append(held, []string{policy.HeldDestructive, policy.HeldWrites, text("ab*", 4), text("ab*", 4), text("ab", 3)}[r.IntN(5)])
		}
		set := policy.New(1000, map[string]policy.ServerRules{"s": {Tools: policy.List{Allow: []string{"*"}}, Held: held}})
		for range 40 {
			q := policy.Request{Who: who, Action: "tools/call", Server: "s", Name: text("ab", 3), Holds: true,
				Tool: policy.Claims{ReadOnly: r.IntN(2) == 0, Harmless: r.IntN(2) == 0}}
			want := ""
			if i := heldBy(held, q.Name, q.Tool); i >= 0 {
				want = fmt.Sprintf("mcpServers.s.doorward.tools.ask[%d]", i)
			}
			if d := set.Decide(q); !d.Allow || d.Ask.Rule != want {
				t.Fatalf("seed %d: %q of %q, %+v: held by %q, want %q", seed, q.Name, held, q.Tool, d.Ask.Rule, want)
			}
		}
	}
}

// TestRulesThatHoldOtherCallsAllocateNothing: a decision from the cache allocates nothing,
// also with tools.ask for other tools.
func TestRulesThatHoldOtherCallsAllocateNothing(t *testing.T) {
	who := principal.New("uid:1000", principal.Fact{Name: "uid", Value: "1000", Grade: principal.Attested}).WithLocal()
	set := policy.New(1000, map[string]policy.ServerRules{"s": {Tools: policy.List{Allow: []string{"*"}}, Held: otherTools()}})
	if n := testing.AllocsPerRun(1000, func() {
		set.Decide(policy.Request{Who: who, Action: "tools/call", Server: "s", Name: "echo", Holds: true})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func otherTools() []string {
	return []string{"write_*", "delete_*", "drop_*", "*_secret", "send_mail", "pay", "deploy_*", "git_push"}
}
