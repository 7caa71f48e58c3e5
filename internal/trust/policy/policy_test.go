package policy

import (
	"testing"

	"github.com/doorward/doorward/internal/trust/principal"
)

// house is a daemon of user 1000 with five servers.
func house() *Set {
	all := List{Allow: []string{"*"}}
	ask := List{Allow: []string{"elicitation"}}
	return New(1000, map[string]ServerRules{
		"notes":  {Tools: all, Ask: ask},
		"files":  {Tools: List{Allow: []string{"read_*", "stat"}, Deny: []string{"*_secret", "read_all"}}, Ask: List{Allow: []string{"*"}, Deny: []string{"sampling"}}},
		"shut":   {},
		"agent":  {Tools: all},
		"remote": {Tools: List{Allow: []string{"*"}, Deny: []string{"*"}}, Ask: List{Allow: []string{"sampling", "roots"}}},
	})
}

func token(grade principal.Grade, scope string) *principal.Principal {
	return principal.New("token:ci", principal.Fact{Name: "scope", Value: scope, Grade: grade})
}

func scoped(scope string) *principal.Principal { return token(principal.Verified, scope) }

// question is one row of a table: a principal, an act, and the expected decision.
type question struct {
	who                  *principal.Principal
	action, server, name string
	allow                bool
	rule                 string
}

func ask(t *testing.T, s *Set, rows []question) {
	t.Helper()
	for _, q := range rows {
		d := s.Decide(Request{Who: q.who, Action: q.action, Server: q.server, Name: q.name})
		if d.Allow != q.allow || d.Rule != q.rule {
			t.Errorf("%s %v: %s %q %q: got %v by %s, want %v by %s", q.who.Name(), q.who.Facts(), q.action, q.server, q.name, d.Allow, d.Rule, q.allow, q.rule)
		}
		if d.Reason == "" {
			t.Errorf("%s %s: no reason", q.who.Name(), q.action)
		}
	}
}

func TestKindsOfPrincipal(t *testing.T) {
	t.Parallel()
	owner := principal.New("uid:1000")
	local := principal.New("loopback:uid=1000")
	unknown := principal.New("loopback:unknown")
	tok := principal.New("token:ci")
	const call, files, notes = "tools/call", "files", "notes"
	ask(t, house(), []question{
		{nil, call, notes, "x", false, "default.nobody"},
		{&principal.Principal{}, call, notes, "x", false, "default.nobody"},
		{principal.New("root"), call, notes, "x", false, "default.nobody"},
		{principal.New("uid:01000"), call, notes, "x", false, "default.nobody"},
		{principal.New("uid:1001"), call, notes, "x", false, "default.nobody"},
		{principal.New("uid:0"), "initialize", "", "", false, "default.nobody"},
		{principal.New("oauth:https://i.example#s"), call, notes, "x", false, "default.nobody"},
		{principal.New("spawn:a1"), call, notes, "x", false, "default.nobody"},
		{principal.New("loopback:uid=1001"), "initialize", "", "", false, "default.nobody"},
		{principal.New("loopback:uid=10000"), "initialize", "", "", false, "default.nobody"},

		{owner, call, notes, "x", true, "default.owner"},
		{owner, "initialize", "", "", true, "default.owner"},
		{owner, ActionAdmin, "", "status", true, "default.owner"},
		{owner, "agent.send", "", "", true, "default.correspondence"},
		{owner, call, "ghost", "x", false, "default.unknown-server"},
		{owner, "some/future", notes, "", true, "default.owner"},

		{local, call, notes, "x", true, "default.loopback"},
		{local, "initialize", "", "", true, "default.loopback"},
		{local, "server/discover", "", "", true, "default.loopback"},
		{local, "agent.send", "", "", true, "default.correspondence"},
		{local, "instructions.read", "", "", true, "default.loopback"},
		{local, "daemon.stop", "", "", false, "default.unknown-action"},
		{local, ActionAdmin, "", "", false, "default.loopback-no-admin"},
		{local, ActionAdmin, notes, "", false, "default.loopback-no-admin"},

		{unknown, call, notes, "x", true, "default.loopback-unknown"},
		{unknown, "agent.send", "", "", false, "default.no-messaging"},
		{unknown, call, "agent", "send", false, "default.no-messaging"},
		{unknown, "tools/list", "agent", "", false, "default.no-messaging"},
		{unknown, ActionAdmin, "", "", false, "default.loopback-no-admin"},

		{tok, call, notes, "x", true, "default.token"},
		{tok, "instructions.read", "", "", true, "default.token"},
		{tok, "agent.send", "", "", false, "default.no-messaging"},
		{tok, call, "agent", "send", false, "default.no-messaging"},
		{tok.WithLocal(), call, "agent", "send", true, "default.token"},
		{tok.WithLocal(), "agent.inbox", "", "", true, "default.token"},
		{owner, "agent.spawn", "", "", true, "default.owner"},
		{local, "agent.spawn", "", "", false, "default.unknown-action"},
		{tok.WithLocal(), "agent.spawn", "", "", false, "default.unknown-action"},
		{scoped("agent").WithLocal(), "agent.spawn", "", "", false, "token.scope"},
		{tok.WithLocal(), ActionAdmin, "", "", false, "default.token-no-admin"},
		{tok, "daemon.stop", "", "", false, "default.unknown-action"},

		{owner, call, files, "read_it", true, "default.owner"},
		{owner, call, files, "stat", true, "default.owner"},
		{owner, call, files, "Stat", false, "mcpServers.files.doorward.tools.allow"},
		{owner, call, files, "write", false, "mcpServers.files.doorward.tools.allow"},
		{owner, call, files, "", false, "mcpServers.files.doorward.tools.allow"},
		{owner, call, files, "read_secret", false, "mcpServers.files.doorward.tools.deny[0]"},
		{owner, call, files, "read_all", false, "mcpServers.files.doorward.tools.deny[1]"},
		{owner, call, "remote", "x", false, "mcpServers.remote.doorward.tools.deny[0]"},
		{owner, call, "shut", "x", false, "mcpServers.shut.doorward.tools.allow"},
		{owner, "prompts/get", "shut", "x", true, "default.owner"},
	})
}

func TestQuestionsOfServers(t *testing.T) {
	t.Parallel()
	owner := principal.New("uid:1000")
	ask(t, house(), []question{
		{owner, AskElicitation, "notes", "", true, "default.owner"},
		{owner, AskSampling, "notes", "", false, "mcpServers.notes.doorward.ask.allow"},
		{owner, AskRoots, "notes", "", false, "mcpServers.notes.doorward.ask.allow"},
		{owner, AskElicitation, "files", "", true, "default.owner"},
		{owner, AskSampling, "files", "", false, "mcpServers.files.doorward.ask.deny[0]"},
		{owner, AskRoots, "files", "", true, "default.owner"},
		{owner, AskElicitation, "remote", "", false, "mcpServers.remote.doorward.ask.allow"},
		{owner, AskSampling, "remote", "", true, "default.owner"},
		{owner, AskElicitation, "shut", "", false, "mcpServers.shut.doorward.ask.allow"},
		{nil, AskElicitation, "notes", "", false, "default.nobody"},
	})
}

func TestScopesOfTokens(t *testing.T) {
	t.Parallel()
	const in = true
	const rule = "token.scope"
	one, two, tool := scoped("server:notes"), scoped("server:notes, tool:files/stat"), scoped("tool:files/read_it")
	ask(t, house(), []question{
		{one, "initialize", "", "", in, rule},
		{one, "server/discover", "", "", in, rule},
		{one, "initialize", "notes", "", in, rule},
		{one, "tools/call", "notes", "x", in, rule},
		{one, "some/future", "notes", "", in, rule},
		{one, "initialize", "files", "", false, rule},
		{one, "tools/call", "files", "stat", false, rule},
		{one, "tools/call", "note", "x", false, "default.unknown-server"},
		{one, "tools/call", "agent", "x", false, "default.no-messaging"},
		{one, "agent.send", "", "", false, "default.no-messaging"},
		{one.WithLocal(), "agent.send", "", "", false, rule},
		{one, "instructions.read", "", "", false, rule},
		{one, "session.list", "", "", false, rule},
		{one, ActionAdmin, "", "", false, rule},
		{one, ActionAdmin, "notes", "", false, rule},

		{two, "tools/call", "notes", "x", in, rule},
		{two, "tools/call", "files", "stat", in, rule},
		{two, "tools/call", "files", "read_it", false, rule},

		{tool, "initialize", "", "", in, rule},
		{tool, "initialize", "files", "", in, rule},
		{tool, "tools/list", "files", "", in, rule},
		{tool, "tools/call", "files", "read_it", in, rule},
		{tool, "tools/call", "files", "read_other", false, rule},
		{tool, "tools/call", "notes", "read_it", false, rule},
		{tool, "resources/read", "files", "read_it", false, rule},
		{tool, "prompts/get", "files", "read_it", false, rule},
		{tool, "resources/list", "files", "", false, rule},
		{tool, AskElicitation, "files", "", in, rule},
		{tool, AskElicitation, "notes", "", false, rule},
		{scoped("tool:files/read_secret"), "tools/call", "files", "read_secret", false, "mcpServers.files.doorward.tools.deny[0]"},
		{scoped("tool:files"), "tools/call", "files", "", false, "mcpServers.files.doorward.tools.allow"},
		{scoped("tool:files/*"), "tools/call", "files", "stat", false, rule},
		{scoped("server:*"), "tools/call", "notes", "x", false, rule},

		{scoped("admin"), ActionAdmin, "", "", in, rule},
		{scoped("admin"), "initialize", "", "", false, rule},
		{scoped("admin"), "tools/call", "notes", "x", false, rule},
		{scoped("admin:x"), ActionAdmin, "", "", false, rule},
		{scoped("server:admin"), ActionAdmin, "", "", false, rule},

		{scoped("agent").WithLocal(), "agent.send", "", "", in, "default.correspondence"},
		{scoped("agent").WithLocal(), "tools/call", "agent", "send", in, rule},
		{scoped("agent"), "tools/call", "agent", "send", false, "default.no-messaging"},
		{scoped("agent").WithLocal(), "initialize", "", "", in, rule},
		{scoped("agent").WithLocal(), "instructions.read", "", "", false, rule},
		{scoped("agent").WithLocal(), "tools/call", "notes", "x", false, rule},
		{scoped("instructions"), "instructions.read", "", "", in, rule},
		{scoped("instructions"), "tools/call", "notes", "x", false, rule},

		{scoped(" , ,"), "initialize", "", "", false, rule},
		{scoped(""), "tools/call", "notes", "x", false, rule},
		{scoped("SERVER:notes"), "tools/call", "notes", "x", false, rule},
	})
}

// A token whose scope is not verified may do nothing. A scope that could not be read
// must not be taken for none, which would allow every server.
func TestScopeThatIsNotProvedAllowsNothing(t *testing.T) {
	t.Parallel()
	for _, g := range []principal.Grade{principal.Unavailable, principal.Claimed, principal.Observed} {
		for _, scope := range []string{"server:notes,admin", ""} {
			ask(t, house(), []question{
				{token(g, scope), "tools/call", "notes", "x", false, "token.scope"},
				{token(g, scope), ActionAdmin, "", "", false, "token.scope"},
				{token(g, scope), "initialize", "", "", false, "token.scope"},
			})
		}
	}
	claimed := principal.New("token:ci", principal.Fact{Name: "scope", Value: "server:notes", Grade: principal.Verified},
		principal.Fact{Name: "scope", Value: "admin", Grade: principal.Claimed})
	ask(t, house(), []question{{claimed, ActionAdmin, "", "", false, "token.scope"}, {claimed, "tools/call", "notes", "x", true, "token.scope"}})
}

// A claim of a caller about itself changes no decision.
func TestClaimsDecideNothing(t *testing.T) {
	t.Parallel()
	plain := principal.New("loopback:unknown")
	boasting := principal.New("loopback:unknown", principal.Fact{Name: "scope", Value: "admin", Grade: principal.Claimed},
		principal.Fact{Name: "uid", Value: "1000", Grade: principal.Claimed})
	s := house()
	for _, action := range []string{"initialize", "tools/call", ActionAdmin, "agent.send", AskSampling} {
		for _, server := range []string{"", "notes", "agent", "ghost"} {
			a := s.Decide(Request{Who: plain, Action: action, Server: server, Name: "x"})
			b := s.Decide(Request{Who: boasting, Action: action, Server: server, Name: "x"})
			if a != b {
				t.Errorf("%s on %q: %v became %v", action, server, a, b)
			}
		}
	}
}
