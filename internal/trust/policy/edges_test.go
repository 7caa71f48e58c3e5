package policy

import (
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/trust/principal"
)

// TestAnActIsHeldForAnAncestorToo: what is held for whoever started an agent is held for
// the agent, by that rule; a rule of the agent's own comes first.
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

// TestWordsForClaimsAreNoNames: a tool that is called like a word of tools.ask is not
// held for its name.
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

// TestAVerdictIsFoundUnderItsOwnKey, also where two keys have one hash.
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

// TestWhatIsKeptIsBounded: a question with longer names than the bounds is answered and
// not kept, and one at the bounds is.
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

// TestWhatAFileMayNotHold: the first byte counts like any other, and the names and reasons
// of rules have bounds.
func TestWhatAFileMayNotHold(t *testing.T) {
	t.Parallel()
	rule := func(annotation string) string { return annotation + " permit (principal, action, resource);" }
	for _, c := range []struct{ file, problem string }{
		{"\xff", "not UTF-8"}, {"\x00", "not UTF-8"}, {"x\xff", "not UTF-8"}, {"// \ufffd\n", ""},
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

// TestOpenBracketsAreCounted: brackets in texts and comments are none, and those that are
// closed do not count.
func TestOpenBracketsAreCounted(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("(", maxNesting)
	for text, want := range map[string]int{
		deep: 0, deep + "(": 1, "\n\n" + deep + "[": 3, deep + ")" + "{": 0, deep + "]}": 0, strings.Repeat("()", 3*maxNesting): 0,
		`"` + deep + `((("`: 0, `"\"` + deep + `((("`: 0, `"a"` + deep + "(": 1, `"\\"` + deep + "(": 1,
		"// " + deep + "(((": 0, "// x\n" + deep + "(": 2, "/* " + deep + "(\n*/": 0, "/* \n */" + deep + "(": 2, "/" + deep + "(": 1, deep + "/": 0,
		`"a` + "\n" + deep + "(": 2,
	} {
		if got := tooDeep([]byte(text)); got != want {
			t.Errorf("%.20q…%.20q: line %d, want %d", text, text[max(0, len(text)-10):], got, want)
		}
	}
}
