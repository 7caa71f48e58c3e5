package policy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"

	"github.com/doorward/doorward/internal/trust/principal"
)

// FuzzDenyNeverAllowsMore: one more deny pattern never turns a deny into an allow.
func FuzzDenyNeverAllowsMore(f *testing.F) {
	f.Add("read_*", "*_all", "*", "read_all", "tools/call", "uid:1000", "")
	f.Add("*", "", "sampling", "x", AskSampling, "token:ci", "server:s")
	f.Add("*", "*", "", "", AskElicitation, "loopback:unknown", "tool:s/x")
	f.Fuzz(func(t *testing.T, allow, deny, more, name, action, who, scope string) {
		var facts []principal.Fact
		if scope != "" {
			facts = append(facts, principal.Fact{Name: "scope", Value: scope, Grade: principal.Verified})
		}
		p := principal.New(who, facts...)
		rules := func(deny ...string) map[string]ServerRules {
			l := List{Allow: []string{allow}, Deny: deny}
			return map[string]ServerRules{"s": {Tools: l, Ask: l}}
		}
		before, after := New(1000, rules(deny)), New(1000, rules(deny, more))
		for _, server := range []string{"s", "", "other"} {
			q := Request{Who: p, Action: action, Server: server, Name: name}
			a, b := before.Decide(q), after.Decide(q)
			if b.Allow && !a.Allow {
				t.Errorf("%+v: denied by %s, allowed by %s after another deny pattern", q, a.Rule, b.Rule)
			}
			if (a.Allow || b.Allow) && !p.Valid() {
				t.Errorf("%q is no valid principal and was allowed", who)
			}
			if a.Rule == "" || b.Rule == "" {
				t.Errorf("%+v: a decision without a rule", q)
			}
		}
	})
}

// writer makes rules out of any bytes.
type writer struct {
	bytes []byte
	at    int
}

func (w *writer) pick(n int) int {
	if w.at >= len(w.bytes) {
		return 0
	}
	w.at++
	return int(w.bytes[w.at-1]) % n
}

func (w *writer) of(texts ...string) string { return texts[w.pick(len(texts))] }

func (w *writer) rule(effect string) string {
	head := fmt.Sprintf("%s (%s, %s, %s)", effect,
		w.of("principal", `principal == Principal::"uid:1000"`, `principal in Kind::"token"`, `principal == Principal::"spawn:a"`, `principal is Principal`),
		w.of("action", `action == Action::"tools/call"`, `action in Action::"session"`, `action in [Action::"tools/call", Action::"prompts/get"]`),
		w.of("resource", `resource == Tool::"notes/add"`, `resource in Server::"notes"`, `resource is Tool`, `resource is Resource in Server::"notes"`))
	for range w.pick(3) {
		head += "\n" + w.of("when", "unless") + " { " + w.condition(effect, 3) + " }"
	}
	return head + ";\n"
}

func (w *writer) condition(effect string, depth int) string {
	if depth > 0 {
		switch w.pick(6) {
		case 0:
			return "!(" + w.condition(effect, depth-1) + ")"
		case 1:
			return "(" + w.condition(effect, depth-1) + " && " + w.condition(effect, depth-1) + ")"
		case 2:
			return "(" + w.condition(effect, depth-1) + " || " + w.condition(effect, depth-1) + ")"
		case 3:
			return "(if " + w.condition(effect, depth-1) + " then " + w.condition(effect, depth-1) + " else " + w.condition(effect, depth-1) + ")"
		}
	}
	leaves := []string{"true", "principal.local", "principal.scoped", `resource.name like "a*"`, "context.attested.uid == 1000", "context.attested.gid > 5",
		`context has args && context.args.x == 1`, "context has args && context.args.list.contains(1)", `context has args && context.args has x`,
		`principal in Kind::"uid"`, `action in Action::"session"`, "9223372036854775807 + context.attested.uid > 0", `context.verified has scope`}
	if effect == "forbid" {
		leaves = append(leaves, `context.observed.exe == "/usr/bin/node"`, `context.observed has exe`, "context.observed.pid > 1")
	}
	return w.of(leaves...)
}

// allQuestions are requests of several principals, acts and arguments.
func allQuestions() []Request {
	var out []Request
	for _, who := range []*principal.Principal{withFacts(), principal.New("uid:1000"), principal.New("uid:1001"), principal.New("token:ci").WithLocal(),
		scoped("tool:notes/add"), principal.New("spawn:a"), principal.New("loopback:unknown"), nil} {
		for _, act := range []Request{{Action: "tools/call", Server: "notes", Name: "add"}, {Action: "tools/call", Server: "files", Name: "stat"},
			{Action: "tools/list", Server: "notes"}, {Action: "initialize"}, {Action: "resources/read", Server: "notes", Name: "a"},
			{Action: "prompts/get", Server: "notes", Name: "a"}, {Action: "completion/complete", Server: "notes", Name: "a"}, {Action: ActionAdmin}} {
			for _, args := range []string{"", `{}`, `{"x":1}`, `{"x":2,"list":[1]}`, `{"x":"1","list":{}}`, `[`} {
				for i := range 2 {
					q := act
					q.Who, q.SameProgram = who, i == 1
					if args != "" {
						q.Args = []byte(args)
					}
					out = append(out, q)
				}
			}
		}
	}
	return out
}

// compiled compiles a generated file, which may have warnings and no errors.
func compiled(t *testing.T, file string) *Set {
	t.Helper()
	s, problems := Compile(Options{UID: 1000, Servers: servers(), File: "p.cedar", Text: []byte(file)})
	if s == nil {
		t.Fatalf("%s\n%+v", file, problems)
	}
	return s
}

// oracle decides by evaluating every rule as a whole and by itself, with all
// arguments, and without index, order or cache.
func oracle(s *Set, q Request) (allow, known bool) {
	if !q.Who.Valid() {
		return false, true
	}
	w := s.world(q)
	context := s.contextOf(q.Who, q.SameProgram)
	if HasArguments(q.Action) {
		args, err := arguments(q.Args, &need{all: true})
		if err != nil {
			return false, false
		}
		context = w.with(args)
	}
	permit, forbid := false, false
	for _, resource := range w.resources {
		for id, r := range s.rules {
			d, diag := cedar.Authorize(cedar.PolicyMap{id: r.whole}, w.entities, cedar.Request{Principal: w.principal, Action: w.action, Resource: resource, Context: context})
			permit = permit || d == cedar.Allow
			forbid = forbid || !r.permit && len(diag.Reasons)+len(diag.Errors) > 0
		}
	}
	return permit && !forbid, true
}

// holds checks that one more forbid never turns a deny into an allow. For the file
// with it, a decision agrees with oracle and is the same the second time, an act
// that is allowed is listed, and an invalid principal may do nothing.
func holds(t *testing.T, base, more []byte, all []Request) {
	t.Helper()
	w := &writer{bytes: base}
	var file strings.Builder
	for range 1 + w.pick(4) {
		file.WriteString(w.rule(w.of("permit", "forbid")))
	}
	forbid := (&writer{bytes: more}).rule("forbid")
	before, after := compiled(t, file.String()), compiled(t, file.String()+forbid)
	for _, q := range all {
		a, b := before.Decide(q), after.Decide(q)
		text := fmt.Sprintf("%s\nand\n%s\n%s %+v", file.String(), forbid, q.Who.Name(), q)
		if b.Allow && !a.Allow {
			t.Fatalf("%s: denied by %s, then allowed by %s", text, a.Rule, b.Rule)
		}
		if want, known := oracle(after, q); known && want != b.Allow {
			t.Fatalf("%s: %v by %s, and the rules say %v", text, b.Allow, b.Rule, want)
		}
		listed := q
		listed.Listing, listed.Args = true, nil
		if l := after.Decide(listed); b.Allow && !l.Allow {
			t.Fatalf("%s: allowed by %s, and not listed by %s", text, b.Rule, l.Rule)
		}
		if again := after.Decide(q); again != b {
			t.Fatalf("%s: %+v, then %+v", text, b, again)
		}
		if b.Allow && !q.Who.Valid() || b.Rule == "" || b.Reason == "" {
			t.Fatalf("%s: %+v", text, b)
		}
	}
}

func FuzzForbidNeverAllowsMore(f *testing.F) {
	f.Add([]byte{}, []byte{})
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, []byte{3, 1, 1, 2, 0, 3, 13, 1, 4, 6, 2, 9, 14, 15})
	f.Add([]byte("permit something"), []byte("and forbid another"))
	all := allQuestions()
	f.Fuzz(func(t *testing.T, base, more []byte) { holds(t, base, more, all) })
}

// The properties of holds are true for generated policies, without a fuzzer.
func TestGeneratedPolicies(t *testing.T) {
	t.Parallel()
	all := allQuestions()
	r := rand.New(rand.NewPCG(1, generations))
	for range generations {
		base, more := make([]byte, 60), make([]byte, 20)
		for i := range base {
			base[i] = byte(r.Uint32())
		}
		for i := range more {
			more[i] = byte(r.Uint32())
		}
		holds(t, base, more, all)
	}
}

const generations = 25
