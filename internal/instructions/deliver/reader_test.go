package deliver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
)

func TestASessionOfSomebodyElseGivesNothing(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	_, others := h.issue("uid:1001", document.Behavioural, document.Structural)
	for _, c := range []*client{h.legacy("a", others), h.modern("b", others)} {
		seen := c.everything(h)
		for _, w := range []string{"heron", "lighthouse", "verdict", "table of"} {
			if strings.Contains(seen, w) {
				t.Errorf("%q by the session of another user", w)
			}
		}
	}
	if n := len(h.s.readers.cache.held); n != 0 {
		t.Errorf("%d readers are kept", n)
	}
}

// TestPolicyIsAskedAgain: a right that policy takes away ends for open sessions too.
func TestPolicyIsAskedAgain(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	ctx := context.Background()
	r := h.reader(h.full())
	if _, err := h.s.deliveries.Voice(ctx, r); err != nil {
		t.Fatal(err)
	}
	h.gate.SetPolicy(h.rules(`@id("tier") forbid (principal, action == Action::"instructions.behavioural", resource);`))
	h.s.Policy()
	if _, err := h.s.deliveries.Voice(ctx, r); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	if got, err := h.s.deliveries.Instructions(ctx, r, 0); err != nil || strings.Contains(got.Body, "heron") || !strings.Contains(got.Body, plantedPlan) {
		t.Errorf("%+v %v", got, err)
	}
	h.gate.SetPolicy(h.rules(`@id("name") forbid (principal, action == Action::"instructions.read", resource) when { resource.name == "voice" };`))
	h.s.Policy()
	before := len(h.lines())
	if _, err := h.s.deliveries.Voice(ctx, r); err == nil || err.Error() != ErrNotFound.Error() {
		t.Errorf("%v", err)
	}
	if l := h.lines()[before:]; len(l) != 1 || l[0].Decision != audit.Deny || !strings.Contains(l[0].Rule, "name") {
		t.Errorf("%+v", l)
	}
	if got, err := h.s.deliveries.Template(ctx, r, "plan", "", ""); err != nil || got.Bare != plantedPlan {
		t.Errorf("%+v %v", got, err)
	}
}

// TestABearerTokenReadsByItself: a bearer token reads without a session what policy
// permits it. Shown beside a connection it gives that connection the same texts and
// no more.
func TestABearerTokenReadsByItself(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	ctx := context.Background()
	token := principal.New("token:ci").WithLocal()
	r := h.s.readers.bearerReader(token)
	if !slices.Equal(r.Scope, []string{document.Structural}) {
		t.Fatalf("%v", r.Scope)
	}
	got, err := h.s.deliveries.Instructions(ctx, r, 0)
	h.must(err)
	if strings.Contains(got.Body, "heron") || !strings.Contains(got.Body, plantedPlan) {
		t.Error(got.Body)
	}
	if d, _ := h.refs.Find(got.Ref); d.Session != "token:ci" {
		t.Errorf("%+v", d)
	}
	beside := h.modern("a", h.s.credentials.bearer(token))
	text, less := beside.greeting("server/discover")
	if less != "" || text != got.Body {
		t.Errorf("%s %s", less, text)
	}
	before := len(h.lines())
	if text, _ := beside.tool("read", m{"name": "judge"}); text != textUnknown {
		t.Error(text)
	}
	beside.tool("read", m{})
	l := h.lines()[before:]
	if len(l) != 2 || l[0].Decision != audit.Deny || l[1].Detail["bearer"] != "token:ci" || l[1].Principal != "uid:1000" || l[1].Detail["scope"] != document.Structural {
		t.Errorf("%+v", l)
	}
	if got, _ := h.open(token, "", "", true).greeting("server/discover"); got != text {
		t.Error("the token's own connection is greeted otherwise")
	}
	scoped := principal.New("token:ci", principal.Fact{Name: "scope", Value: "server:notes", Grade: principal.Verified}).WithLocal()
	if h.s.credentials.bearer(scoped) == h.s.credentials.bearer(token) {
		t.Error("two tokens of one name have one id")
	}
	h.s.o.Holds = func(*principal.Principal) bool { return false }
	if _, less := beside.greeting("server/discover"); less != Expired {
		t.Error(less)
	}
}

// TestAudiencesSelectByVerifiedFacts: audiences select by the name, the lineage, the
// launcher, the project and the environment of a reader. A claimed launcher does
// not count.
func TestAudiencesSelectByVerifiedFacts(t *testing.T) {
	t.Parallel()
	h := build(t, plan{rules: `@id("all") permit (principal, action in Action::"instructions", resource);`})
	for name, audience := range map[string]string{"mine": `principals: ["spawn:x"]`, "ours": `lineage: ["uid:1000"]`, "coders": "roles: [coder]",
		"demo": `projects: ["demo-*"]`, "desk": "environments: [desk]", "barn": "environments: [barn]"} {
		h.file(name, "class: template\ntier: structural\naudience: {"+audience+"}", "For "+name+".")
	}
	h.look()
	_, s, err := h.keeper.Issue(context.Background(), session.Request{Subject: "spawn:x", Scope: []string{document.Structural}, Project: "demo-1"}, said)
	h.must(err)
	can := func(who *principal.Principal) (names []string) {
		docs, _, err := h.s.deliveries.Templates(context.Background(), &Reader{Who: who, Session: s, Scope: s.Scope})
		h.must(err)
		for _, d := range docs {
			if d.Audience.Principals != nil || strings.HasPrefix(d.Body, "For ") {
				names = append(names, d.Name)
			}
		}
		return names
	}
	bare := principal.New("spawn:x")
	claimed := principal.New("spawn:x", principal.Fact{Name: factLauncher, Value: "coder", Grade: principal.Claimed})
	proved := principal.New("spawn:x", principal.Fact{Name: factLauncher, Value: "coder", Grade: principal.Verified}).WithParent(program("p"))
	for _, c := range []struct {
		who  *principal.Principal
		want []string
	}{{bare, []string{"demo", "desk", "mine"}}, {claimed, []string{"demo", "desk", "mine"}}, {proved, []string{"coders", "demo", "desk", "mine", "ours"}}} {
		if got := can(c.who); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.who.FactsJSON(), got, c.want)
		}
	}
}
