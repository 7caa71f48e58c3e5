package policy

import (
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/trust/principal"
)

// TestAnActIsHeldForAnAncestorToo: an act that is held for the principal that started an
// agent is held for the agent, by that rule. A rule of the agent's own comes first.
func TestAnActIsHeldForAnAncestorToo(t *testing.T) {
	t.Parallel()
	s := with(t, `
@id("generous") permit (principal in Kind::"spawn", action, resource);
@id("careful") @ask("the owner is asked") permit (principal == Principal::"uid:1000", action == Action::"tools/call", resource == Tool::"notes/write");
@id("own") @ask("the agent is asked") permit (principal in Kind::"spawn", action == Action::"tools/call", resource == Tool::"notes/pay");`)
	kid := started(principal.New("uid:1000").WithLocal(), "server:notes")
	for name, want := range map[string]string{"write": "careful", "pay": "own", "read": ""} {
		q := callOf(kid, name, "")
		q.Holds = true
		if d := s.Decide(q); !d.Allow || d.Ask.Rule != want {
			t.Errorf("%s: %+v, want it held by %q", name, d, want)
		}
		if q.Holds = false; s.Decide(q).Allow != (want == "") {
			t.Errorf("%s where nothing is held: %+v", name, s.Decide(q))
		}
	}
}

// TestWordsForClaimsAreNoNames: a tool whose name is a word of tools.ask for claims is not
// held because of its name.
func TestWordsForClaimsAreNoNames(t *testing.T) {
	t.Parallel()
	for _, word := range []string{HeldDestructive, HeldWrites} {
		s := New(1000, map[string]ServerRules{"s": {Tools: List{Allow: []string{"*"}}, Held: []string{word}}, "t": {Held: []string{"x"}}})
		if !s.AsksOfClaims("s") || s.AsksOfClaims("t") || s.AsksOfClaims("u") {
			t.Errorf("%s: claims count on %v, %v, %v", word, s.AsksOfClaims("s"), s.AsksOfClaims("t"), s.AsksOfClaims("u"))
		}
		q := Request{Who: principal.New("uid:1000"), Action: ActionCall, Server: "s", Name: word, Holds: true, Tool: Claims{Harmless: true, ReadOnly: true}}
		if d := s.Decide(q); !d.Allow || d.Ask.Rule != "" {
			t.Errorf("the tool %s: %+v", word, d)
		}
	}
}

// TestAVerdictIsFoundUnderItsOwnKey verifies that verdicts with equal hashes are kept apart.
func TestAVerdictIsFoundUnderItsOwnKey(t *testing.T) {
	t.Parallel()
	c := newCache()
	k, other := key{who: "a", action: "x"}, key{who: "b", action: "x"}
	const hash = 4711
	c.keep(&entry{hash: hash, key: other})
	if c.find(&k, hash) != nil || c.find(&other, hash+slots) != nil {
		t.Error("found the verdict of another key or hash")
	}
	c.keep(&entry{hash: hash, key: k})
	if c.find(&k, hash) == nil || c.find(&other, hash) == nil {
		t.Error("what was kept last is not found, or took the place of another")
	}
	for i := range uint64(ways) {
		c.keep(&entry{hash: hash, key: key{who: "c", name: string(rune('0' + i))}})
	}
	if c.find(&k, hash) != nil {
		t.Error("a key has more places than there are")
	}
}

// TestWhatIsKeptIsBounded: a key with names at the bounds is kept, and one with longer
// names is not.
func TestWhatIsKeptIsBounded(t *testing.T) {
	t.Parallel()
	half := maxNames / 2
	for _, c := range []struct {
		who, action, server, name int
		kept                      bool
	}{{maxIdentity, 0, 0, 0, true}, {maxIdentity + 1, 0, 0, 0, false}, {0, maxNames, 0, 0, true}, {0, 0, maxNames, 0, true}, {0, 0, 0, maxNames, true},
		{0, half, half, 0, true}, {0, half, half, 1, false}, {0, 1, half, half, false}, {0, half, 1, half, false}} {
		k := key{strings.Repeat("w", c.who), strings.Repeat("a", c.action), strings.Repeat("s", c.server), strings.Repeat("n", c.name), false}
		if k.fits() != c.kept {
			t.Errorf("%+v: kept %v", c, k.fits())
		}
	}
}

// TestAFileWithBadNamesIsRefused: names and reasons of rules that are hidden, double or too
// long are refused.
func TestAFileWithBadNamesIsRefused(t *testing.T) {
	t.Parallel()
	rule := func(annotation string) string { return annotation + " permit (principal, action, resource);" }
	for _, c := range []struct{ file, problem string }{
		{rule(`@id("")`), "@id must be"}, {rule(`@id("a\u{202e}b")`), "@id must be"}, {rule(`@id("` + strings.Repeat("x", 128) + `")`), ""},
		{rule(`@id("` + strings.Repeat("x", 129) + `")`), "@id must be"}, {rule(`@reason("a\nb")`), "@reason must be"},
		{rule(`@reason("` + strings.Repeat("x", 256) + `")`), ""}, {rule(`@reason("` + strings.Repeat("x", 257) + `")`), "@reason must be"},
		{rule(`@id("limits.x")`), "Doorward's own"}, {rule(`@id("a")`) + rule(`@id("a")`), "has this @id"},
	} {
		_, problems := load("p.cedar", []byte(c.file))
		switch {
		case c.problem == "" && len(problems) > 0:
			t.Errorf("%.40q: %+v", c.file, problems)
		case c.problem != "" && (len(problems) != 1 || !strings.Contains(problems[0].Text, c.problem)):
			t.Errorf("%.40q: %+v, want %s", c.file, problems, c.problem)
		}
	}
}

// TestEveryPathIsFound: a permit is refused when it rests on observed facts or the whole
// context, in any form of the expression.
func TestEveryPathIsFound(t *testing.T) {
	t.Parallel()
	for condition, want := range map[string]string{
		`context.observed.exe == "x"`:                                      "observed fact",
		`context["observed"].exe == "x"`:                                   "observed fact",
		`(if true then context.observed else context.attested).exe == "x"`: "observed fact",
		`context.observed has exe`:                                         "observed fact",
		`{"a": context.observed.exe}.a == "x"`:                             "observed fact",
		`["x"].contains(context.observed.exe)`:                             "observed fact",
		`context.attested.uid == 1 || !(context.observed.pid > 1)`:         "observed fact",
		`context == {}`: "context as a whole",
		`(if true then context else context).attested.uid == 1`:                      "context as a whole",
		`{"a": context}.a.attested.uid == 1`:                                         "context as a whole",
		`principal == context`:                                                       "context as a whole",
		`principal.name == "x" && resource.name == "y" && context.attested.uid == 1`: "",
	} {
		set, problems := Compile(Options{UID: 1000, File: "p.cedar", Text: []byte(`permit (principal, action, resource) when { ` + condition + ` };`)})
		if (set == nil) != (want != "") || want != "" && (len(problems) != 1 || !strings.Contains(problems[0].Text, want)) {
			t.Errorf("%s: %+v, want %q", condition, problems, want)
		}
	}
}

// TestClausesAddUp: a rule needs the arguments and facts of all its clauses.
func TestClausesAddUp(t *testing.T) {
	t.Parallel()
	s := with(t, `@id("r") forbid (principal, action == Action::"tools/call", resource)
when { context.args.a == 1 && resource.name == "x" } unless { context.attested.uid == 1 } when { context.args.b == 2 && context.attested.gid == 3 };`)
	r := s.rules["r"]
	if r.args == nil || r.args.all || strings.Join(r.args.names, " ") != "a b" || strings.Join(r.facts, " ") != "uid gid" {
		t.Errorf("it reads the facts %v and the arguments %+v", r.facts, r.args)
	}
}

// TestTheFirstRuleInOrderIsNamed verifies which of several matching rules a decision names:
// rules that hold a call, with and without arguments, and rules about two resources.
func TestTheFirstRuleInOrderIsNamed(t *testing.T) {
	t.Parallel()
	ask := func(file string, q Request) Decision {
		q.Who, q.Server, q.Holds = principal.New("token:a"), "notes", true
		return with(t, file).Decide(q)
	}
	const both = `
@id("careful") @ask("first") permit (principal, action == Action::"tools/call", resource == Tool::"notes/x");
@id("large") @ask("second") permit (principal, action == Action::"tools/call", resource == Tool::"notes/x") when { context.args.n > 1 };
@id("third") @ask("third") permit (principal, action == Action::"tools/call", resource == Tool::"notes/x");`
	for _, args := range []string{`{"n":0}`, `not JSON`} {
		if d := ask(both, Request{Action: ActionCall, Name: "x", Args: []byte(args)}); !d.Allow || d.Ask.Rule != "careful" {
			t.Errorf("%s: %+v", args, d)
		}
	}
	const prompt, resource = `resource == Prompt::"notes/x"`, `resource == Resource::"notes/x"`
	for _, effect := range []string{"permit", "forbid"} {
		for _, order := range [][2]string{{prompt, resource}, {resource, prompt}} {
			file := `@id("one") ` + effect + ` (principal, action, ` + order[0] + `); @id("two") ` + effect + ` (principal, action, ` + order[1] + `);`
			if d := ask(file, Request{Action: ActionComplete, Name: "x"}); d.Rule != "one" || d.Allow != (effect == "permit") {
				t.Errorf("%s: %+v", file, d)
			}
		}
	}
}

// TestAPermitThatFailsBeforeItsArgumentsIsNone verifies that such a permit neither permits
// the act nor changes the decision of another rule.
func TestAPermitThatFailsBeforeItsArgumentsIsNone(t *testing.T) {
	t.Parallel()
	s := with(t, `@id("wide") permit (principal == Principal::"token:a", action, resource);
@id("p") permit (principal, action == Action::"tools/call", resource) when { context.attested.label == "x" } when { context.args.a == 1 };`)
	if d := s.Decide(callOf(principal.New("token:a"), "x", `{"a":1}`)); !d.Allow || d.Rule != "wide" {
		t.Errorf("%+v", d)
	}
}

// TestMethodsWithoutATypedObjectAreAboutTheServer: a method without an object, or whose
// object has no type, is decided about the server.
func TestMethodsWithoutATypedObjectAreAboutTheServer(t *testing.T) {
	t.Parallel()
	s := with(t, `@id("server") forbid (principal, action, resource == Server::"notes");
@id("resource") forbid (principal, action, resource == Resource::"notes/x");`)
	for _, c := range []struct{ action, name, rule string }{
		{"resources/list", "", "server"}, {"resources/read", "x", "resource"}, {"tasks/get", "x", "server"}, {"strange/method", "x", "server"}, {"ping", "", "server"},
	} {
		q := Request{Who: principal.New("uid:1000").WithLocal(), Action: c.action, Server: "notes", Name: c.name}
		if d := s.Decide(q); d.Allow || d.Rule != c.rule {
			t.Errorf("%s of %q: %+v, want %s", c.action, c.name, d, c.rule)
		}
	}
}

// TestWordsOfNoScopeGrantNothing: a word of a scope in any other form grants nothing.
func TestWordsOfNoScopeGrantNothing(t *testing.T) {
	t.Parallel()
	s := with(t, "")
	for word, want := range map[string]bool{"tool:notes/read": true, "server:notes": true,
		"prompt:notes/read": false, "xtool:notes/read": false, ":notes/read": false, "notes/read": false, "tool:notes": false, "tool:notes/": false,
		"tool:/read": false, "server:": false, "server": false, "Server:notes": false, "tool:notes/read/x": false, "": false} {
		who := principal.New("token:t", principal.Fact{Name: "scope", Value: word, Grade: principal.Verified}).WithLocal()
		if d := s.Decide(callOf(who, "read", "")); d.Allow != want {
			t.Errorf("%q: %+v", word, d)
		}
	}
	for _, word := range []string{"prompt:files/x", "tool:files", "files/x"} {
		who := principal.New("token:t", principal.Fact{Name: "scope", Value: word, Grade: principal.Verified}).WithLocal()
		if d := s.Decide(Request{Who: who, Action: "tools/list", Server: "files"}); d.Allow {
			t.Errorf("%q opens a session: %+v", word, d)
		}
	}
}
