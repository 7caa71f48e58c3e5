package policy

import (
	"testing"

	"github.com/doorward/doorward/internal/trust/principal"
)

// servers are three servers, two of them without restrictions on tools.
func servers() map[string]ServerRules {
	all, ask := List{Allow: []string{"*"}}, List{Allow: []string{"elicitation"}}
	return map[string]ServerRules{
		"notes": {Tools: all, Ask: ask}, "agent": {Tools: all, Ask: ask},
		"files": {Tools: List{Allow: []string{"read_*", "stat"}, Deny: []string{"*_secret"}}, Ask: ask},
	}
}

// with is a daemon of user 1000 with a policy file.
func with(t testing.TB, file string) *Set {
	t.Helper()
	s, problems := Compile(Options{UID: 1000, Servers: servers(), File: "/etc/doorward/policy.cedar", Text: []byte(file)})
	if s == nil {
		t.Fatalf("problems %+v", problems)
	}
	return s
}

// withFacts is the daemon's own user with attested and observed facts.
func withFacts() *principal.Principal {
	fact := func(name, value string, g principal.Grade) principal.Fact {
		return principal.Fact{Name: name, Value: value, Grade: g}
	}
	return principal.New("uid:1000",
		fact("uid", "1000", principal.Attested), fact("gid", "100", principal.Attested), fact("groups", "100,27", principal.Attested),
		fact("label", "unconfined", principal.Attested), fact("instance", "boot/4711", principal.Attested),
		fact("pid", "4711", principal.Observed), fact("exe", "/usr/bin/node", principal.Observed),
		fact("exe_sha256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", principal.Observed),
		fact("parent_exe", "/usr/bin/bash", principal.Observed), fact("start", "12345", principal.Observed),
		fact("cgroup", "/user.slice", principal.Observed), fact("unit", "", principal.Unavailable)).WithLocal()
}

// answer is one row of a table: a question to a policy file.
type answer struct {
	q     Request
	allow bool
	rule  string
}

func (a answer) check(t *testing.T, s *Set) {
	t.Helper()
	if d := s.Decide(a.q); d.Allow != a.allow || d.Rule != a.rule {
		t.Errorf("%s %s %q %q %s listing %v same program %v: got %v by %s (%s), want %v by %s", a.q.Who.Name(), a.q.Action, a.q.Server, a.q.Name,
			a.q.Args, a.q.Listing, a.q.SameProgram, d.Allow, d.Rule, d.Reason, a.allow, a.rule)
	}
}

// callOf is a tool call on notes.
func callOf(who *principal.Principal, name, args string) Request {
	q := Request{Who: who, Action: "tools/call", Server: "notes", Name: name}
	if args != "" {
		q.Args = []byte(args)
	}
	return q
}

// The operator's file is added to the default policy: its permits allow more, its
// forbids less, and each rule is named by its @id or by its place.
func TestFileStandsOnTop(t *testing.T) {
	t.Parallel()
	s := with(t, `
@id("spawned-agents-read")
@reason("agents that the daemon started may read notes")
permit (principal in Kind::"spawn", action == Action::"tools/call", resource == Tool::"notes/read");

forbid (principal, action == Action::"tools/call", resource in Server::"notes")
when { resource.name like "drop_*" };

@id("no-\"quotes\"") forbid (principal == Principal::"token:ci", action, resource == Tool::"notes/say \"hi\"*");
permit (principal == Principal::"token:ops", action == Action::"admin", resource); permit (principal == Principal::"token:ops2", action == Action::"admin", resource);
`)
	owner, agent, tok := principal.New("uid:1000"), principal.New("spawn:a1"), principal.New("token:ci")
	for _, a := range []answer{
		{callOf(owner, "read", ""), true, "default.owner"},
		{callOf(owner, "drop_all", ""), false, "policy.cedar:6"},
		{callOf(agent, "read", ""), true, "spawned-agents-read"},
		{callOf(agent, "write", ""), false, "default.nobody"},
		{callOf(agent, "drop_all", ""), false, "policy.cedar:6"},
		{Request{Who: agent, Action: "tools/list", Server: "notes"}, false, "default.nobody"},
		{callOf(tok, `say "hi"*`, ""), false, `no-"quotes"`},
		{callOf(tok, `say "hi" x`, ""), true, "default.token"},
		{Request{Who: principal.New("token:ops"), Action: ActionAdmin, Name: "status"}, true, "policy.cedar:10"},
		{Request{Who: principal.New("token:ops2"), Action: ActionAdmin, Name: "status"}, true, "policy.cedar:10:84"},
		{Request{Who: tok, Action: ActionAdmin, Name: "status"}, false, "default.token-no-admin"},
	} {
		a.check(t, s)
	}
	for _, c := range []struct {
		q    Request
		want Decision
	}{
		{callOf(agent, "read", ""), Decision{Allow: true, Rule: "spawned-agents-read", Reason: "agents that the daemon started may read notes", At: "policy.cedar:2"}},
		{callOf(owner, "drop_x", ""), Decision{Rule: "policy.cedar:6", Reason: "a rule of the policy file", At: "policy.cedar:6"}},
		{callOf(nil, "x", ""), Decision{Rule: "default.nobody", Reason: "no rule allows this principal"}},
	} {
		if got := s.Decide(c.q); got != c.want {
			t.Errorf("got %+v, want %+v", got, c.want)
		}
	}
}

// Of several rules that decide, the same one is named each time: a permit of the
// file before one of the default policy; a forbid of the default policy before
// the servers' lists, and those before the file.
func TestNameOfSeveralRules(t *testing.T) {
	t.Parallel()
	s := with(t, `
@id("b") permit (principal == Principal::"uid:1000", action, resource);
@id("a") permit (principal == Principal::"uid:1000", action, resource);
@id("z") forbid (principal, action, resource) when { resource.name like "*_secret" };
@id("y") forbid (principal, action, resource) when { resource.name == "a_secret" };
@id("blind one") forbid (principal, action, resource == Tool::"notes/blind") when { context.verified.issuer == "x" };
@id("blind two") forbid (principal, action, resource == Tool::"notes/blind") when { context.verified.issuer == "y" };
`)
	owner := principal.New("uid:1000")
	for range 20 {
		answer{callOf(owner, "x", ""), true, "b"}.check(t, s)
		answer{callOf(owner, "a_secret", ""), false, "z"}.check(t, s)
		answer{callOf(owner, "blind", ""), false, "blind one"}.check(t, s)
		answer{Request{Who: owner, Action: "tools/call", Server: "files", Name: "read_secret"}, false, "mcpServers.files.doorward.tools.deny[0]"}.check(t, s)
		answer{Request{Who: owner, Action: "tools/call", Server: "ghost", Name: "a_secret"}, false, "default.unknown-server"}.check(t, s)
		s.cache = newCache()
	}
}

// A permit for everything in the file does not override the forbids of the default
// policy and of the servers' lists.
func TestHardRulesCannotBePermitted(t *testing.T) {
	t.Parallel()
	s := with(t, `@id("everybody") permit (principal, action, resource);`)
	tok, unknown := principal.New("token:ci"), principal.New("loopback:unknown")
	for _, a := range []answer{
		{Request{Who: tok, Action: "agent.send"}, false, "default.no-messaging"},
		{Request{Who: principal.New("oauth:https://i.example#s"), Action: "agent.send"}, false, "default.no-messaging"},
		{Request{Who: principal.New("spawn:a"), Action: "agent.send"}, false, "default.no-messaging"},
		{Request{Who: tok, Action: "tools/call", Server: "agent", Name: "send"}, false, "default.no-messaging"},
		{Request{Who: tok.WithLocal(), Action: "tools/call", Server: "agent", Name: "send"}, true, "everybody"},
		{Request{Who: unknown.WithLocal(), Action: "agent.send"}, false, "default.no-messaging"},
		{Request{Who: unknown, Action: ActionAdmin}, false, "default.loopback-no-admin"},
		{Request{Who: principal.New("loopback:uid=1000"), Action: ActionAdmin}, false, "default.loopback-no-admin"},
		{callOf(principal.New("loopback:uid=1001"), "x", ""), false, "default.nobody"},
		{Request{Who: tok, Action: "tools/call", Server: "ghost", Name: "x"}, false, "default.unknown-server"},
		{callOf(nil, "x", ""), false, "default.nobody"},
		{callOf(principal.New("root"), "x", ""), false, "default.nobody"},
		{callOf(principal.New("uid:1001"), "x", ""), true, "everybody"},
		{Request{Who: tok, Action: "tools/call", Server: "files", Name: "write"}, false, "mcpServers.files.doorward.tools.allow"},
		{Request{Who: tok, Action: AskSampling, Server: "notes"}, false, "mcpServers.notes.doorward.ask.allow"},
	} {
		a.check(t, s)
	}
}

// The scope of an access token is read as that of a token. An empty one grants
// nothing.
func TestScopesOfOAuth(t *testing.T) {
	t.Parallel()
	s := with(t, `@id("alice-stats") permit (principal == Principal::"oauth:https://i.example#alice", action == Action::"tools/call", resource == Tool::"files/stat")
when { context.verified.oauth_scope.contains("files.stat") };`)
	oauth := func(scope string) *principal.Principal {
		return principal.New("oauth:https://i.example#alice", principal.Fact{Name: "scope", Value: scope, Grade: principal.Verified},
			principal.Fact{Name: "oauth_scope", Value: "openid files.stat", Grade: principal.Verified})
	}
	stat := Request{Who: oauth("server:notes"), Action: "tools/call", Server: "files", Name: "stat"}
	for _, a := range []answer{
		{callOf(oauth("server:notes"), "x", ""), true, "token.scope"},
		{callOf(oauth(""), "x", ""), false, "token.scope"},
		{Request{Who: oauth(""), Action: "initialize"}, false, "token.scope"},
		{callOf(principal.New("oauth:https://i.example#alice"), "x", ""), false, "default.nobody"},
		{stat, true, "alice-stats"},
		{Request{Who: oauth("server:notes"), Action: "tools/call", Server: "files", Name: "read_it"}, false, "token.scope"},
		{Request{Who: oauth("admin"), Action: ActionAdmin, Name: "status"}, true, "token.scope"},
	} {
		a.check(t, s)
	}
}

// A method with the name of a group of actions is not in the group.
func TestMethodsAreNoGroups(t *testing.T) {
	t.Parallel()
	s := with(t, `@id("asks") forbid (principal, action in Action::"ask", resource);`)
	for group := range Groups() {
		answer{Request{Who: principal.New("uid:1000"), Action: group, Server: "notes"}, true, "default.owner"}.check(t, s)
		answer{Request{Who: scoped("tool:notes/x"), Action: group, Server: "notes"}, false, "token.scope"}.check(t, s)
		answer{Request{Who: scoped("agent").WithLocal(), Action: group}, false, "token.scope"}.check(t, s)
	}
	answer{Request{Who: principal.New("uid:1000"), Action: AskElicitation, Server: "notes"}, false, "asks"}.check(t, s)
}

// A completion names a prompt or a resource without saying which: rules about
// either hold for it.
func TestCompletionIsAboutPromptOrResource(t *testing.T) {
	t.Parallel()
	s := with(t, `
@id("prompt") forbid (principal, action, resource == Prompt::"notes/p");
@id("file") forbid (principal, action, resource is Resource) when { resource.name like "file:*" };
@id("agent-prompt") permit (principal == Principal::"spawn:a", action == Action::"completion/complete", resource == Prompt::"notes/q");`)
	about := func(who, action, name string) Request {
		return Request{Who: principal.New(who), Action: action, Server: "notes", Name: name}
	}
	for _, a := range []answer{
		{about("uid:1000", "completion/complete", "p"), false, "prompt"},
		{about("uid:1000", "prompts/get", "p"), false, "prompt"},
		{about("uid:1000", "resources/read", "p"), true, "default.owner"},
		{about("uid:1000", "completion/complete", "file:///x"), false, "file"},
		{about("uid:1000", "resources/subscribe", "file:///x"), false, "file"},
		{about("uid:1000", "prompts/get", "file:///x"), true, "default.owner"},
		{about("uid:1000", "completion/complete", "r"), true, "default.owner"},
		{about("spawn:a", "completion/complete", "q"), true, "agent-prompt"},
		{about("spawn:a", "completion/complete", "r"), false, "default.nobody"},
	} {
		a.check(t, s)
	}
}

// Lists with hostile characters decide as the reference of their patterns.
func TestHostileListsMeanWhatTheySay(t *testing.T) {
	t.Parallel()
	hostile := map[string]ServerRules{"notes": {Tools: List{Allow: []string{`a"*`, `\*b`, "*\n*", `é*`, "\x01", "plain"}, Deny: []string{`*\`, `"`, "*secret*", "\u202e*"}}}}
	s := New(1000, hostile)
	for _, name := range []string{`a"x`, `*b`, `\*b`, `\xb`, "a\nb", "é", "éa", "\x01", "plain", `a\`, `"`, "asecretb", "\u202ea", "", "x"} {
		if d := s.Decide(callOf(principal.New("uid:1000"), name, "")); d.Allow != covered(hostile["notes"].Tools, name) {
			t.Errorf("%q: %v by %s", name, d.Allow, d.Rule)
		}
	}
}

// covered reports whether a list allows a name, by the reference.
func covered(l List, name string) bool {
	hit := func(patterns []string) bool {
		for _, p := range patterns {
			if reference(p, name) {
				return true
			}
		}
		return false
	}
	return hit(l.Allow) && !hit(l.Deny)
}
