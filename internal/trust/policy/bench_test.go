package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/trust/principal"
)

func decisions() map[string]Request {
	return map[string]Request{
		"owner":    {Who: principal.New("uid:1000"), Action: "tools/call", Server: "notes", Name: "search"},
		"loopback": {Who: principal.New("loopback:uid=1000"), Action: "tools/call", Server: "files", Name: "read_something_long"},
		"token":    {Who: scoped("server:remote,tool:files/stat,server:notes"), Action: "tools/call", Server: "notes", Name: "search"},
		"nobody":   {Action: "tools/call", Server: "notes", Name: "search"},
	}
}

// BenchmarkCached is a decision from the cache.
func BenchmarkCached(b *testing.B) {
	s := house()
	for name, q := range decisions() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Decide(q)
			}
		})
	}
	q := Request{Who: withFacts(), Action: "tools/call", Server: "notes", Name: "search"}
	b.Run("facts", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				s.Decide(q)
			}
		})
	})
}

// BenchmarkFirst is a decision without the cache.
func BenchmarkFirst(b *testing.B) {
	many := map[string]ServerRules{}
	for i := range 50 {
		many[fmt.Sprintf("s%d", i)] = ServerRules{Tools: List{Allow: []string{"read_*", "list_*", "stat"}, Deny: []string{"*_secret", "drop_*"}}, Ask: List{Allow: []string{"elicitation"}}}
	}
	reads := `forbid (principal in Kind::"uid", action == Action::"tools/call", resource) when { context.attested.uid == 4242 };`
	for name, c := range map[string]struct {
		set *Set
		q   Request
	}{
		"default":                  {New(1000, map[string]ServerRules{"notes": {Tools: List{Allow: []string{"*"}}, Ask: List{Allow: []string{"*"}}}}), Request{Who: withFacts(), Action: "tools/call", Server: "notes", Name: "search"}},
		"token with a scope":       {house(), Request{Who: scoped("server:remote,tool:files/stat,server:notes"), Action: "tools/call", Server: "notes", Name: "search"}},
		"50 servers with lists":    {New(1000, many), Request{Who: withFacts(), Action: "tools/call", Server: "s25", Name: "read_it"}},
		"a file that reads a fact": {with(b, reads), Request{Who: withFacts(), Action: "tools/call", Server: "notes", Name: "search"}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.set.judge(c.q)
			}
		})
	}
}

// BenchmarkArguments is a decision with arguments that a rule reads.
func BenchmarkArguments(b *testing.B) {
	s := with(b, `forbid (principal, action == Action::"tools/call", resource == Tool::"notes/write") when { context.args.path like "/etc/*" };`)
	for name, args := range map[string]string{
		"small": `{"path":"/home/a/notes.txt","text":"hello"}`,
		"large": fmt.Sprintf(`{"text":%q,"path":"/home/a/notes.txt"}`, strings.Repeat("a", 1<<16)),
	} {
		q := Request{Who: withFacts(), Action: "tools/call", Server: "notes", Name: "write", Args: []byte(args)}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !s.Decide(q).Allow {
					b.Fatal("denied")
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		house()
	}
}
