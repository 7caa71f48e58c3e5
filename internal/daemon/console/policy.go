package console

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/daemon/history"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// policyData is the data of the page Policy.
type policyData struct {
	Text              string
	As, Action, On    string
	Asked             bool
	Wrong             string // why the question cannot be answered
	Decision          policy.Decision
	Denials           []denial
	Servers           []string
	Kinds             []string
	DenialsIncomplete bool
}

// denial counts the recent refusals by one rule.
type denial struct {
	Rule, Last string
	Count      int
	At         time.Time
}

// policy shows the rules in force, answers "may X do Y", and counts the recent refusals.
func (c *Console) policy(q *request) (page, error) {
	d := policyData{Text: c.o.Policy(), As: q.in.Get("as"), Action: cmp.Or(q.in.Get("action"), "tools/call"), On: q.in.Get("on"), Asked: q.in.Get("as") != ""}
	if d.Asked {
		d.answer(c)
	}
	var err error
	if d.Denials, d.DenialsIncomplete, err = denials(q.ctx, c.o.AuditDir); err != nil {
		return page{}, err
	}
	return page{View: "policy", Title: "Policy", Data: d}, nil
}

func (d *policyData) answer(c *Console) {
	if _, _, err := principal.Parse(d.As); err != nil {
		d.Wrong = "A principal is written uid:1000, token:NAME, loopback:uid=1000, oauth:ISSUER#SUBJECT or spawn:ID."
		return
	}
	server, name, _ := strings.Cut(d.On, "/")
	d.Decision = c.o.Decide(policy.Request{Who: principal.New(d.As), Action: d.Action, Server: server, Name: name})
}

// mostRules is the largest number of rules that the page lists.
const mostRules = 50

// denials counts the latest refusals by rule, the most frequent first. more reports that there
// are older ones.
func denials(ctx context.Context, dir string) (all []denial, more bool, err error) {
	found, err := history.Search(ctx, dir, history.Filter{All: true, Outcome: "denied"}, 0, mostDenials)
	if err != nil {
		return nil, false, err
	}
	by := make(map[string]*denial)
	for _, e := range found.Entries {
		d := by[e.Rule]
		if d == nil {
			d = &denial{Rule: e.Rule, Last: e.Principal + " " + e.Action + " " + e.Resource, At: e.Time}
			by[e.Rule] = d
		}
		d.Count++
	}
	for _, d := range by {
		all = append(all, *d)
	}
	slices.SortFunc(all, func(a, b denial) int { return cmp.Or(b.Count-a.Count, strings.Compare(a.Rule, b.Rule)) })
	return all[:min(len(all), mostRules)], found.Next > 0, nil
}

const mostDenials = 2000

func splitLines(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(s string) bool { return s == "" })
}
