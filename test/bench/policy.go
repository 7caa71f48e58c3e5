//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// decision holds the cost of one policy decision in this process.
type decision struct {
	Policy string        `json:"policy"`
	When   string        `json:"when"`
	Each   time.Duration `json:"each_ns"` // median of the rounds
}

// asks is the number of decisions in a round: many enough that the resolution of the clock does not
// matter.
const asks = 20_000

// argumentFile holds a typical rule that reads an argument.
const argumentFile = `forbid (principal, action == Action::"tools/call", resource == Tool::"s7/write") unless { context.args.path like "/home/*" };`

// decide measures decisions with typical policies: the default, fifty servers with their own lists,
// and a file with a rule about arguments.
func (r *run) decide() ([]decision, error) {
	all := policy.List{Allow: []string{"*"}}
	plain, many := map[string]policy.ServerRules{"s7": {Tools: all, Ask: all}}, map[string]policy.ServerRules{}
	for i := range 50 {
		many["s"+strconv.Itoa(i)] = policy.ServerRules{Tools: policy.List{Allow: []string{"read_*", "list_*", "write"}, Deny: []string{"*_secret", "drop_*"}}, Ask: all}
	}
	var out []decision
	for _, p := range []struct {
		name, file string
		servers    map[string]policy.ServerRules
	}{{"default", "", plain}, {"50 servers with lists", "", many}, {"a rule by argument", argumentFile, plain}} {
		o := policy.Options{UID: 1000, Servers: p.servers}
		if p.file != "" {
			o.File, o.Text = "policy.cedar", []byte(p.file)
		}
		set, problems := policy.Compile(o)
		if set == nil {
			return nil, fmt.Errorf("compiling a policy: %v", problems)
		}
		out = append(out, decision{p.name, "first", r.each(set, func(i int) string { return "read_" + strconv.Itoa(i) })},
			decision{p.name, "again", r.each(set, func(int) string { return "read_it" })})
		if p.file != "" {
			out = append(out, decision{p.name, "with arguments", r.each(set, func(int) string { return "write" })})
		}
	}
	return out, nil
}

// each returns the time of one decision. nameOf returns the tool's name for each of them.
func (r *run) each(set *policy.Set, nameOf func(i int) string) time.Duration {
	who := principal.New("uid:1000", principal.Fact{Name: "uid", Value: "1000", Grade: principal.Attested},
		principal.Fact{Name: "instance", Value: "4026531836/4711", Grade: principal.Attested},
		principal.Fact{Name: "exe", Value: "/usr/bin/node", Grade: principal.Observed}).WithLocal()
	args := []byte(`{"path":"/home/me/notes.txt","text":"what it says does not matter"}`)
	names := make([]string, asks)
	var rounds []time.Duration
	for round := range r.rounds {
		for i := range names {
			names[i] = nameOf(round*asks + i)
		}
		before := time.Now()
		for _, name := range names {
			set.Decide(policy.Request{Who: who, Action: "tools/call", Server: "s7", Name: name, Args: args})
		}
		rounds = append(rounds, time.Since(before)/asks)
	}
	slices.Sort(rounds)
	return rounds[len(rounds)/2]
}

func (res *results) printDecisions(w io.Writer) {
	if len(res.Decisions) == 0 {
		return
	}
	table(w, "Policy", "One decision in the benchmark's own process: the first time a question is asked, again, and with arguments that a rule reads, which are looked at each time. Medians of the rounds.",
		"policy", "asked", "ns")
	for _, d := range res.Decisions {
		fmt.Fprintf(w, "| %s | %s | %d |\n", d.Policy, d.When, d.Each.Nanoseconds())
	}
}
