package policycheck

import (
	"fmt"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/visible"
)

func servers() map[string]policy.ServerRules {
	all, ask := policy.List{Allow: []string{"*"}}, policy.List{Allow: []string{"elicitation"}}
	return map[string]policy.ServerRules{
		"notes": {Tools: all, Ask: ask}, "agent": {Tools: all, Ask: ask},
		"files": {Tools: policy.List{Allow: []string{"read_*", "stat"}, Deny: []string{"*_secret"}}, Ask: ask},
	}
}

// problemsOf compiles a policy file and formats its problems.
func problemsOf(file string) string {
	s, problems := Compile(policy.Options{UID: 1000, Servers: servers(), File: "/etc/doorward/policy.cedar", Text: []byte(file)})
	var b strings.Builder
	for _, p := range problems {
		word := ""
		if p.Warning {
			word = "warning: "
		}
		fmt.Fprintf(&b, "%d:%s: %s%s\n", p.Line, p.Key, word, p.Text)
	}
	if (s == nil) != Fatal(problems) {
		b.WriteString("a Set goes with a fatal problem, or none without\n")
	}
	return b.String()
}

const forbidCall = `forbid (principal, action == Action::"tools/call", resource)`

// Each problem of a policy file is reported with its line, its rule and a remedy.
func TestProblems(t *testing.T) {
	t.Parallel()
	const observed = "a permit may not rest on an observed fact; write a forbid"
	const wholeContext = "a rule may not use context as a whole, since it does not show which facts it rests on; name them, as in context.attested.uid"
	for _, c := range []struct{ name, file, want string }{
		{"nothing", "", ""},
		{"comments", "// nothing\n/* here */\n", ""},

		// Syntax.
		{"no end", "\n" + forbidCall + "\n\n", "2:: this is not Cedar: found the end, but ; is expected"},
		{"one token too few", "permit (principal, action, resource)\nwhen { principal.owner }\npermit (principal, action, resource);", "3:: this is not Cedar: found permit, but ; is expected"},
		{"no effect", "allow (principal, action, resource);", "1:: this is not Cedar: unexpected effect: allow"},
		{"text without end", forbidCall + "\nwhen { resource.name == \"x };\n", "2:: this is not Cedar: literal not terminated"},
		{"escape", forbidCall + "\n\nwhen { resource.name == \"\\q\" };\n// more\n", "3:: this is not Cedar: "},
		{"no function", forbidCall + " when { now() };", "1:: this is not Cedar: `now` is not a function"},
		{"not UTF-8", "// fine\n// \xff", "2:: this is not UTF-8 text"},
		{"brackets", strings.Repeat("(", 100000), "1:: more than 200 brackets are open here"},
		{"brackets in a text", "// ((((\n" + forbidCall + ` when { resource.name == "` + strings.Repeat("(", 500) + `" };`, ""},

		// Names.
		{"twice", "@id(\"a\") " + forbidCall + ";\n@id(\"a\") " + forbidCall + ";", "2:a: the rule on line 1 has this @id; give each rule its own"},
		{"by place", forbidCall + ";\n@id(\"policy.cedar:1\") " + forbidCall + ";", "2:policy.cedar:1: the rule on line 1 has this @id"},
		{"reserved default", `@id("default.x") ` + forbidCall + ";", "1:default.x: names that begin with default., mcpServers., token., limits. are Doorward's own; choose another @id"},
		{"reserved lists", `@id("mcpServers.notes.doorward.tools.deny[0]") ` + forbidCall + ";", "1:mcpServers.notes.doorward.tools.deny[0]: names that begin with"},
		{"reserved token", `@id("token.scope") ` + forbidCall + ";", "1:token.scope: names that begin with"},
		{"empty", `@id("") ` + forbidCall + ";", "1:: @id must be one line"},
		{"control", `@id("a\u{1b}[0m") ` + forbidCall + ";", `1:"a\u001b[0m": @id must be one line`},
		{"reason", "@id(\"a\")\n@reason(\"two\\nlines\")\n" + forbidCall + ";", "1:a: @reason must be one line"},

		// Grades.
		{"permit on observed", `@id("p") permit (principal in Kind::"uid", action, resource) when { context.observed.exe == "/usr/bin/x" };`, "1:p: " + observed},
		{"permit unless observed", `permit (principal in Kind::"uid", action, resource) unless { context.observed.exe == "x" };`, "1:: " + observed},
		{"permit has observed", `permit (principal in Kind::"uid", action, resource) when { context has observed };`, "1:: " + observed},
		{"permit has observed fact", `permit (principal in Kind::"uid", action, resource) when { context has observed.exe };`, "1:: " + observed},
		{"permit observed has", `permit (principal in Kind::"uid", action, resource) when { context["observed"] has exe };`, "1:: " + observed},
		{"permit deep inside", `permit (principal in Kind::"uid", action, resource) when { if principal.owner then true else [1].contains(context.observed.pid) };`, "1:: " + observed},
		{"permit by a detour", `permit (principal in Kind::"uid", action, resource) when { (if true then context.observed else context.attested).exe == "x" };`, "1:: " + observed + "\n1:: name the fact, as in context.attested.gid"},
		{"permit in a record", `permit (principal in Kind::"uid", action, resource) when { {c: context}.c.observed.exe == "x" };`, "1:: " + wholeContext},
		{"permit compares context", `permit (principal in Kind::"uid", action, resource) when { context == {} };`, "1:: " + wholeContext},
		{"permit asks context", `permit (principal in Kind::"uid", action, resource) when { (if true then context else context) has observed };`, "1:: " + wholeContext},
		{"permit in a set", `permit (principal in Kind::"uid", action, resource) when { [context].contains(context) };`, "1:: " + wholeContext},
		{"forbid compares context", forbidCall + ` when { context == {} };`, "1:: " + wholeContext},
		{"forbid takes a group", forbidCall + ` when { context.attested == {} };`, "1:: name the fact, as in context.attested.gid"},
		{"claimed", forbidCall + ` when { context.claimed.name == "x" };`, "1:: a claim of the caller about itself decides nothing"},
		{"claimed asked", forbidCall + ` when { context has claimed };`, "1:: a claim of the caller about itself decides nothing"},
		{"claimed in a permit", `permit (principal in Kind::"uid", action, resource) when { context["claimed"].name == "x" };`, "1:: a claim of the caller about itself decides nothing"},
		{"forbid on observed", forbidCall + ` when { context.observed.exe == "x" };`, ""},
		{"permit on attested", `permit (principal in Kind::"uid", action, resource) when { context.attested.uid == 7 };`, ""},

		// Words that are not there.
		{"group", forbidCall + ` when { context.atested.uid == 1 };`, "1:: the context has no atested; it has attested, verified, observed, args"},
		{"group asked", forbidCall + ` when { context has arguments };`, "1:: the context has no arguments"},
		{"fact", forbidCall + ` when { context.observed.exe_sha == "x" };`, "1:: there is no observed fact exe_sha; there are cgroup, exe, exe_sha256, instance, namespaces, parent_exe, parents, pid, start, uid, unit"},
		{"fact asked", forbidCall + ` when { context.attested has user };`, "1:: there is no attested fact user; there are gid, groups, instance, label, uid"},
		{"fact of another grade", forbidCall + ` when { context.attested.exe == "x" };`, "1:: the fact exe is never attested; it is observed"},
		{"fact of a fact", forbidCall + ` when { context.attested.uid.name == "x" };`, "1:: context.attested.uid has no members: it is a number"},
		{"type", forbidCall + ` when { principal is User };`, "1:: there is no type User; there are Principal, Kind,"},
		{"type of an entity", forbidCall + ` when { principal == User::"x" };`, "1:: there is no type User"},
		{"type in the head", `forbid (principal is Agent, action, resource);`, "1:: there is no type Agent"},
		{"type of the wrong part", `forbid (principal == Tool::"notes/x", action, resource);`, "1:: the principal is never a Tool; it is Principal"},
		{"action of the wrong part", `forbid (principal, action == Tool::"notes/x", resource);`, "1:: the action is never a Tool; it is Action"},
		{"resource is a principal", `forbid (principal, action, resource is Principal);`, "1:: the resource is never a Principal; it is Tool, Prompt, Resource, Server, Doorward"},
		{"kind", `forbid (principal in Kind::"user", action, resource);`, "1:: there is no kind of principal user; there are uid, token, loopback, oauth, spawn"},
		{"kind as text", `forbid (principal, action, resource) when { principal.kind == "user" };`, "1:: there is no kind of principal user"},
		{"principal", `forbid (principal == Principal::"ci", action, resource);`, "1:: no principal is called ci; they are written uid:1000,"},
		{"principal with a zero", `forbid (principal == Principal::"uid:01000", action, resource);`, "1:: no principal is called uid:01000"},
		{"principal in a condition", forbidCall + ` when { [Principal::"uid:1", Principal::"joe"].contains(principal) };`, "1:: no principal is called joe"},
		{"tool without server", `forbid (principal, action, resource == Tool::"add");`, `1:: no tool is called add; write Tool::"SERVER/NAME"`},
		{"server with a tool", `forbid (principal, action, resource in Server::"notes/add");`, "1:: no server is called notes/add"},
		{"doorward", `forbid (principal, action, resource == Doorward::"daemon");`, "1:: the only entity of this type is Doorward"},
		{"attribute", forbidCall + ` when { principal.localhost };`, "1:: a principal has no localhost; it has admin, grants, kind, local, name, owner, scoped, servers, stranger"},
		{"attribute asked", forbidCall + ` when { resource has path };`, "1:: a resource has no path; it has configured, name, server"},
		{"attribute of an action", forbidCall + ` when { action.name == "x" };`, "1:: an action has no members"},
		{"tag", forbidCall + ` when { principal.hasTag("x") };`, "1:: entities have no tags here"},
		{"member of an attribute", forbidCall + ` when { principal.name.first == "x" };`, "1:: principal.name has no members"},

		// Comparisons that are never true.
		{"uid as text", forbidCall + ` when { context.attested.uid == "1000" };`, "1:: context.attested.uid is a number and is compared with text, which it never equals"},
		{"uid as text, turned", forbidCall + ` when { "1000" != context.attested.uid };`, "1:: context.attested.uid is a number"},
		{"uid in a list of texts", forbidCall + ` when { ["1000"].contains(context.attested.uid) };`, "1:: context.attested.uid is a number"},
		{"group as text", forbidCall + ` when { context.attested.groups.contains("27") };`, "1:: context.attested.groups is a set of numbers and does not contain text"},
		{"like on a number", forbidCall + ` when { context.attested.uid like "1*" };`, "1:: context.attested.uid is a number, and like compares text"},
		{"principal as text", forbidCall + ` when { principal == "uid:1000" };`, `1:: the principal is not text; compare it with Principal::"…"`},
		{"action as text", forbidCall + ` when { action == "tools/call" };`, `1:: the action is not text`},
		{"truth as text", forbidCall + ` when { principal.local == "true" };`, "1:: principal.local is true or false and is compared with text"},

		// Arguments.
		{"arguments of everything", `forbid (principal, action, resource) when { context.args.x == 1 };`, `1:: only tools/call, prompts/get and agent.send have arguments, so this forbid would refuse everything else`},
		{"arguments of lists", `forbid (principal, action in [Action::"tools/call", Action::"tools/list"], resource) when { context.args.x == 1 };`, `1:: only tools/call, prompts/get and agent.send have arguments`},
		{"arguments of calls", `forbid (principal, action in [Action::"tools/call", Action::"prompts/get"], resource) when { context.args.x == 1 };`, ""},
		{"arguments of a tool", `forbid (principal, action, resource == Tool::"notes/x") when { context.args.x == 1 };`, ""},
		{"arguments, asked first", `forbid (principal, action, resource) when { context has args && context.args.x == 1 };`, ""},
		{"permit by arguments", `permit (principal in Kind::"uid", action, resource) when { context.args.x == 1 };`, ""},

		// Warnings.
		{"server", `forbid (principal, action, resource in Server::"ghost");`, "1:: warning: no server ghost is configured"},
		{"action", `forbid (principal, action == Action::"tool/call", resource);`, "1:: warning: Doorward has no action tool/call"},
		{"widens scopes", `@id("w") permit (principal, action == Action::"tools/call", resource in Server::"notes");`, "1:w: warning: this permit also holds for tokens and OAuth callers whose scope says less: add unless { principal.scoped }"},
		{"widens no scopes", `permit (principal, action, resource in Server::"notes") unless { principal.scoped };`, ""},
		{"narrowed", `permit (principal, action, resource in Server::"notes") when { principal in Kind::"spawn" };`, ""},

		{"program at handshakes", `forbid (principal, action, resource in Server::"notes") unless { context.observed.exe == "/bin/x" };`, "1:: warning: this forbid reads facts of the program, which no handshake"},
		{"program at one handshake", `forbid (principal, action in [Action::"ping", Action::"initialize"], resource) unless { context.observed.exe == "/bin/x" };`, "1:: warning: this forbid reads facts of the program"},
		{"program at calls", `forbid (principal, action == Action::"tools/call", resource) unless { context.observed.exe == "/bin/x" };`, ""},
		{"pid at handshakes", `forbid (principal, action, resource in Server::"notes") when { context.observed.pid == 1 };`, ""},

		// Acts that wait for the operator.
		{"ask of a forbid", `@ask("why") ` + forbidCall + `;`, "1:: @ask has an effect only on a permit"},
		{"ask of what can wait", `@ask("why") permit (principal in Kind::"uid", action in [Action::"tools/call", Action::"agent.send", Action::"agent.spawn"], resource);`, ""},
		{"ask of a mailbox", `@ask("why") permit (principal in Kind::"uid", action == Action::"agent.deliver", resource);`, ""},
		{"ask of reading mail", `@ask("why") permit (principal in Kind::"uid", action == Action::"agent.read", resource);`, "1:: agent.read cannot wait for the operator; @ask is for tools/call, "},
		{"ask of a subscription", `@ask("why") permit (principal in Kind::"uid", action in [Action::"tools/call", Action::"resources/subscribe"], resource);`, "1:: resources/subscribe cannot wait"},
		{"ask of a group", `@ask("why") permit (principal in Kind::"uid", action in Action::"messaging", resource);`, "1:: messaging cannot wait"},
		{"ask of a session", `@ask("why") permit (principal in Kind::"uid", action == Action::"instructions.session", resource);`, "1:: instructions.session cannot wait"},
		{"ask of an unknown method", `@ask("why") permit (principal in Kind::"uid", action == Action::"vendor/own", resource in Server::"notes");`, "1:: warning: Doorward has no action vendor/own\n1:: vendor/own cannot wait"},
		{"ask of everything", `@ask("why") permit (principal in Kind::"uid", action, resource);`, "1:: warning: this @ask also covers actions that cannot wait"},
		{"ask of a server", `@ask("why") permit (principal in Kind::"uid", action, resource in Server::"notes");`, ""},
		{"ask of instructions", `@ask("why") permit (principal in Kind::"uid", action == Action::"instructions.read", resource);`, "1:: warning: instructions.read can wait for the operator only in MCP requests"},

		// All at once.
		{"several", forbidCall + " when { principal.x && context.y };\n\n@id(\"default.\") " + forbidCall + ";\npermit (principal == Principal::\"x\", action, resource);",
			"1:: a principal has no x; \n1:: the context has no y; \n3:default.: names that begin\n4:: no principal is called x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := strings.Split(strings.TrimSuffix(problemsOf(c.file), "\n"), "\n")
			want := strings.Split(c.want, "\n")
			for i, line := range want {
				if len(got) != len(want) || !strings.HasPrefix(got[i], line) || line == "" && got[i] != "" {
					t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), c.want)
				}
			}
		})
	}
}

// FuzzCompile: any text gives a Set or a fatal problem, and each problem has a line of
// the text and printable words of bounded length.
func FuzzCompile(f *testing.F) {
	f.Add(`@id("a") forbid (principal, action == Action::"tools/call", resource) when { context.args.x like "a*" } unless { context has observed.exe };`)
	f.Add("permit(principal,action,resource);\n\n@reason(\"x\")\nforbid(principal,action,resource)when{\"\\u{e9}\"==[1,-2].contains({a:ip(\"::1\")})};")
	f.Fuzz(func(t *testing.T, file string) {
		s, problems := Compile(policy.Options{UID: 1000, Servers: servers(), File: "p.cedar", Text: []byte(file)})
		if (s == nil) != Fatal(problems) {
			t.Fatalf("%q: %v", file, problems)
		}
		lines := strings.Count(file, "\n") + 1
		for _, p := range problems {
			if p.Line < 1 || p.Line > lines || p.Text == "" || !visible.AllPrintable(p.Key) || !visible.AllPrintable(p.Text) || len(p.Key) > 200 || len(p.Text) > 2000 {
				t.Fatalf("%q: %+v", file, p)
			}
		}
		if s != nil {
			s.Decide(policy.Request{Who: principal.New("uid:1000"), Action: "tools/call", Server: "notes", Name: "x", Args: []byte(`{"x":"a"}`)})
		}
	})
}
