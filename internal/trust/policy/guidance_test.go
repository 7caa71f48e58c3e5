package policy

import (
	"testing"

	"github.com/doorward/doorward/internal/trust/principal"
)

// TestInstructionsDependOnThePrincipal: by default only the owner and agents that the owner
// started get behavioural instructions, and loopback gets no session. A rule by name
// or by group can allow both.
func TestInstructionsDependOnThePrincipal(t *testing.T) {
	t.Parallel()
	scoped := func(name, words string) *principal.Principal {
		return principal.New(name, principal.Fact{Name: "scope", Value: words, Grade: principal.Verified})
	}
	owner := principal.New("uid:1000").WithLocal()
	plain, oauth := principal.New("token:ci"), scoped("oauth:https://id.example#me", "instructions")
	const server = "instructions"
	servers := map[string]ServerRules{server: {Tools: List{Allow: []string{"*"}}}}
	byDefault := New(1000, servers)
	own, problems := Compile(Options{UID: 1000, Servers: servers, File: "own.cedar", Text: []byte(`
@id("reviewer") permit (principal == Principal::"token:ci", action == Action::"instructions.behavioural", resource);
@id("desk") permit (principal in Kind::"loopback", action in Action::"guidance", resource);`)})
	if own == nil {
		t.Fatal(problems)
	}
	const yes, no = true, false
	for _, c := range []struct {
		what                             string
		set                              *Set
		who                              *principal.Principal
		session, structural, behavioural bool
	}{
		{"the owner", byDefault, owner, yes, yes, yes},
		{"another user", byDefault, principal.New("uid:1001").WithLocal(), no, no, no},
		{"a token without a scope", byDefault, plain, yes, yes, no},
		{"a token with the word", byDefault, scoped("token:x", "instructions,server:notes"), yes, yes, no},
		{"a token with the server's name", byDefault, scoped("token:x", "server:instructions"), no, no, no},
		{"a token without the word", byDefault, scoped("token:x", "server:notes,agent"), no, no, no},
		{"a token with an empty scope", byDefault, scoped("token:x", ""), no, no, no},
		{"an access token", byDefault, oauth, yes, yes, no},
		{"loopback", byDefault, principal.New("loopback:uid=1000").WithLocal(), no, no, no},
		{"loopback that cannot be told", byDefault, principal.New("loopback:unknown").WithLocal(), no, no, no},
		{"a started agent with the right", byDefault, started(owner, "instructions"), yes, yes, yes},
		{"one without it", byDefault, started(owner, "server:notes"), no, no, no},
		{"one that a token started", byDefault, started(plain, "instructions"), yes, yes, no},
		{"a token with a rule", own, plain, yes, yes, yes},
		{"another token", own, principal.New("token:other"), yes, yes, no},
		{"loopback with a rule", own, principal.New("loopback:uid=1000").WithLocal(), yes, yes, yes},
	} {
		for action, want := range map[string]bool{InstructSession: c.session, InstructStructural: c.structural, InstructBehavioural: c.behavioural} {
			if d := c.set.Decide(Request{Who: c.who, Action: action, Server: server}); d.Allow != want {
				t.Errorf("%s, %s: %v by %s", c.what, action, d.Allow, d.Rule)
			}
		}
	}
}
