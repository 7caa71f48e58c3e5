package policy

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/trust/principal"
)

func TestSecondDecisionAllocatesNothing(t *testing.T) {
	s := house()
	for name, q := range decisions() {
		if n := testing.AllocsPerRun(100, func() { s.Decide(q) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// The key of the cache has everything that a decision depends on: questions that
// differ in one part keep their own answers.
func TestCacheTellsQuestionsApart(t *testing.T) {
	t.Parallel()
	s := with(t, `
@id("exe") forbid (principal == Principal::"uid:1000", action == Action::"tools/call", resource == Tool::"notes/exe") unless { context.observed.exe == "/usr/bin/node" };
@id("label") forbid (principal == Principal::"uid:1000", action == Action::"tools/call", resource == Tool::"notes/label") unless { context.attested.label == "a" };`)
	same := callOf(withFacts(), "exe", "")
	same.SameProgram = true
	labelled := func(v string) *principal.Principal {
		return principal.New("uid:1000", principal.Fact{Name: "label", Value: v, Grade: principal.Attested})
	}
	rows := []answer{
		{callOf(withFacts(), "exe", ""), false, "exe"},
		{same, true, "default.owner"},
		{callOf(labelled("a"), "label", ""), true, "default.owner"},
		{callOf(labelled("b"), "label", ""), false, "label"},
		{callOf(principal.New("token:t"), "x", ""), true, "default.token"},
		{callOf(scoped("server:files"), "x", ""), false, "token.scope"},
		{Request{Who: principal.New("token:t"), Action: "tools/call", Server: "agent", Name: "send"}, false, "default.no-messaging"},
		{Request{Who: principal.New("token:t").WithLocal(), Action: "tools/call", Server: "agent", Name: "send"}, true, "default.token"},
		{Request{Who: withFacts(), Action: "tools/call", Server: "files", Name: "read_x"}, true, "default.owner"},
		{Request{Who: withFacts(), Action: "tools/call", Server: "files", Name: "write"}, false, "mcpServers.files.doorward.tools.allow"},
		{Request{Who: withFacts(), Action: "prompts/get", Server: "files", Name: "write"}, true, "default.owner"},
	}
	for range 3 {
		for _, r := range rows {
			r.check(t, s)
		}
	}
}

// The cache keeps its size, for any number of names, and keeps no key with long ones.
// Callers choose the names.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	s := house()
	owner := principal.New("uid:1000")
	for i := range 3 * slots {
		s.Decide(Request{Who: owner, Action: "tools/call", Server: "notes", Name: fmt.Sprint(i)})
	}
	long := strings.Repeat("x", maxNames)
	s.Decide(Request{Who: owner, Action: "tools/call", Server: "notes", Name: long})
	s.Decide(Request{Who: owner, Action: long, Server: "notes"})
	s.Decide(Request{Who: principal.New("uid:1000", principal.Fact{Name: "exe", Value: strings.Repeat("x", maxIdentity), Grade: principal.Observed}), Action: "ping"})
	if len(s.cache.table) != slots {
		t.Fatalf("%d places", len(s.cache.table))
	}
	for i := range s.cache.table {
		if e := s.cache.table[i].Load(); e != nil && (len(e.key.who) > maxIdentity || len(e.key.action)+len(e.key.server)+len(e.key.name) > maxNames) {
			t.Errorf("a key of %d and %d bytes is kept", len(e.key.who), len(e.key.name))
		}
	}
}

// Decisions while the policy is replaced are those of the old policy or the new one.
func TestDecideBesideReload(t *testing.T) {
	t.Parallel()
	const old, young = `@id("old") forbid (principal, action == Action::"tools/call", resource == Tool::"notes/add") when { context.args.x == 1 };`,
		`@id("new") forbid (principal, action == Action::"tools/call", resource == Tool::"notes/add") when { context.args.x == 1 };`
	var now atomic.Pointer[Set]
	now.Store(with(t, old))
	done := make(chan struct{})
	var wait sync.WaitGroup
	for i := range 4 {
		wait.Go(func() {
			who := principal.New(fmt.Sprintf("token:t%d", i))
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				s := now.Load()
				if d := s.Decide(callOf(who, "add", `{"x":1}`)); d.Allow || d.Rule != "old" && d.Rule != "new" {
					t.Errorf("%+v", d)
					return
				}
				if d := s.Decide(callOf(who, fmt.Sprint(n%50), `{"x":1}`)); !d.Allow {
					t.Errorf("%+v", d)
					return
				}
			}
		})
	}
	for i := range 20 {
		now.Store(with(t, []string{old, young}[i%2]))
	}
	close(done)
	wait.Wait()
}
