package policy

import (
	"testing"

	"github.com/doorward/doorward/internal/trust/principal"
)

// A fact is read under its own grade and in its form, and under no other grade. A
// forbid that reads a fact that is not there refuses.
func TestFactsStandUnderTheirGrade(t *testing.T) {
	t.Parallel()
	rule := func(condition string) *Set {
		return with(t, `@id("r") forbid (principal, action == Action::"tools/call", resource) unless { `+condition+` };`)
	}
	tok := principal.New("token:ci", principal.Fact{Name: "token", Value: "17", Grade: principal.Verified},
		principal.Fact{Name: "issuer", Value: "https://i", Grade: principal.Verified},
		principal.Fact{Name: "oauth_scope", Value: "openid files.read", Grade: principal.Verified})
	for _, c := range []struct {
		who       *principal.Principal
		condition string
		same      bool
		allow     bool
	}{
		{withFacts(), `context.attested.uid == 1000 && context.attested.gid < 101`, false, true},
		{withFacts(), `context.attested.uid == 1001`, false, false},
		{withFacts(), `context.attested.groups.contains(27)`, false, true},
		{withFacts(), `context.attested.groups.contains(2)`, false, false},
		{withFacts(), `context.attested.groups.containsAll([27, 100])`, false, true},
		{withFacts(), `context.attested.label == "unconfined"`, false, true},
		{withFacts(), `context.attested.instance like "boot/*"`, false, true},
		{withFacts(), `context.observed.pid == 4711`, false, true},
		{tok, `context.verified.token == "17"`, false, true},
		{tok, `context.verified.issuer == "https://i"`, false, true},
		{tok, `context.verified.oauth_scope.contains("files.read")`, false, true},
		{tok, `context.verified.oauth_scope.contains("files")`, false, false},

		// Not there: refused, with any condition.
		{withFacts(), `context.observed.uid == 1000`, false, false},
		{withFacts(), `context.observed.instance != "x"`, false, false},
		{withFacts(), `context.observed.unit != "x"`, true, false}, // unavailable
		{withFacts(), `context.observed.namespaces != "foreign"`, false, false},
		{withFacts(), `context.verified.token != "x"`, false, false},
		{tok, `context.attested.uid != 1`, false, false},

		// Facts of the program need a request of the same program.
		{withFacts(), `context.observed.exe == "/usr/bin/node"`, false, false},
		{withFacts(), `context.observed.exe == "/usr/bin/node"`, true, true},
		{withFacts(), `context.observed.exe == "/usr/bin/curl"`, true, false},
		{withFacts(), `context.observed has exe`, false, false},
		{withFacts(), `context.observed has exe`, true, true},
		{withFacts(), `context.observed.parent_exe like "*/bash"`, false, false},
		{withFacts(), `context.observed.parent_exe like "*/bash"`, true, true},
		{withFacts(), `context.observed.start != "0"`, false, false},
		{withFacts(), `context.observed.cgroup != ""`, false, false},
		{withFacts(), `context has observed && context has attested && context has verified && !(context has args && context.args has x)`, false, true},
	} {
		q := callOf(c.who, "x", "")
		q.SameProgram = c.same
		want := answer{q, c.allow, "r"}
		if want.rule = "r"; c.allow {
			want.rule = "default.owner"
			if c.who == tok {
				want.rule = "default.token"
			}
		}
		t.Run(c.condition, func(t *testing.T) { want.check(t, rule(c.condition)) })
	}
}

// A permit reads a fact only under the grade that it names, also beside a claimed
// fact of the same name.
func TestLowGradesDoNotRise(t *testing.T) {
	t.Parallel()
	s := with(t, `@id("p") permit (principal in Kind::"spawn", action, resource) when { context.verified.subject == "alice" };
@id("q") permit (principal in Kind::"spawn", action, resource) when { context.attested.label == "agent" };`)
	for _, c := range []struct {
		name, value string
		grade       principal.Grade
		allow       bool
	}{
		{"subject", "alice", principal.Verified, true},
		{"subject", "alice", principal.Attested, false},
		{"subject", "alice", principal.Observed, false},
		{"subject", "alice", principal.Claimed, false},
		{"subject", "alice", principal.Unavailable, false},
		{"subject", "bob", principal.Verified, false},
		{"label", "agent", principal.Attested, true},
		{"label", "agent", principal.Verified, false},
		{"label", "agent", principal.Claimed, false},
	} {
		who := principal.New("spawn:a", principal.Fact{Name: c.name, Value: c.value, Grade: c.grade})
		if d := s.Decide(callOf(who, "x", "")); d.Allow != c.allow {
			t.Errorf("%s %q %s: %v by %s", c.name, c.value, c.grade, d.Allow, d.Rule)
		}
		both := principal.New("spawn:a", principal.Fact{Name: c.name, Value: "x", Grade: principal.Claimed}, principal.Fact{Name: c.name, Value: c.value, Grade: c.grade})
		if d := s.Decide(callOf(both, "x", "")); d.Allow != c.allow {
			t.Errorf("beside a claim: %s %q %s: %v by %s", c.name, c.value, c.grade, d.Allow, d.Rule)
		}
	}
}

// A forbid that cannot be evaluated denies and gives that reason. A permit that
// cannot be evaluated permits nothing.
func TestErrorsFailClosed(t *testing.T) {
	t.Parallel()
	s := with(t, `
@id("overflow") forbid (principal == Principal::"uid:1000", action, resource == Tool::"notes/sum") when { context.attested.uid * 9223372036854775807 > 0 };
@id("type") permit (principal == Principal::"uid:1001", action, resource) when { context.attested.gid > 0 };
@id("fine") permit (principal == Principal::"uid:1002", action, resource) when { context.attested.gid > 0 };
@id("decimal") forbid (principal == Principal::"uid:1002", action, resource == Tool::"notes/dec") when { decimal(resource.name).lessThan(decimal("1.0")) };`)
	gid := principal.Fact{Name: "gid", Value: "7", Grade: principal.Attested}
	for _, a := range []answer{
		{callOf(withFacts(), "sum", ""), false, "overflow"},
		{callOf(principal.New("uid:1001"), "x", ""), false, "default.nobody"},
		{callOf(principal.New("uid:1001", principal.Fact{Name: "gid", Value: "seven", Grade: principal.Attested}), "x", ""), false, "default.nobody"},
		{callOf(principal.New("uid:1001", gid), "x", ""), true, "type"},
		{callOf(principal.New("uid:1002", gid), "x", ""), true, "fine"},
		{callOf(principal.New("uid:1002", gid), "dec", ""), false, "decimal"},
	} {
		a.check(t, s)
	}
	if d := s.Decide(callOf(withFacts(), "sum", "")); d.Reason != "this rule needs a fact or an argument that is not there" {
		t.Errorf("reason %q", d.Reason)
	}
}
