package pin

import (
	"fmt"
	"log/slog"
	"testing"
)

// TestALookUpVisitsOnlyConnectionsWithFindings: however many connections are open, a look-up of a
// group visits those on which something of the group is withheld, and ended ones leave nothing.
func TestALookUpVisitsOnlyConnectionsWithFindings(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	g := s.auto("s")
	good, bad := tool("a=1"), tool("a=2")
	tools := Tools.key("")
	var all []*View
	for i := range 300 {
		v := g.View()
		all = append(all, v)
		list := good
		if i%100 == 50 {
			list = bad
		}
		v.Meet("legacy", []byte(`{"tools":{}}`), []byte(`"hello"`))
		v.Judge(Asker{Era: "legacy"}, Tools, []byte(list))
	}
	r := s.records["s"]
	if n := len(r.holders); n != 1 || len(r.holders[tools]) != 3 {
		t.Errorf("%d groups, %d connections with withheld tools, want 1 and 3", n, len(r.holders[tools]))
	}
	all[50].Judge(Asker{Era: "legacy"}, Tools, []byte(good))
	if n := len(r.holders[tools]); n != 2 {
		t.Errorf("%d connections with withheld tools after one has another list, want 2", n)
	}
	for _, v := range all {
		v.Close()
	}
	if n := len(r.holders[tools]); n != 1 || !r.holders[tools][nil] || len(r.views) != 1 {
		t.Errorf("%d connections with withheld tools and %d views at the end, want the entry of ended ones alone", n, len(r.views))
	}
	g.Judge(Asker{Era: "legacy"}, Tools, []byte(good))
	if len(r.holders) != 0 {
		t.Errorf("%v afterwards", r.holders)
	}
}

// BenchmarkFound measures a greeting beside other connections.
func BenchmarkFound(b *testing.B) {
	for _, n := range []int{1, 3000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			book, err := Open(Options{Dir: b.TempDir(), Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			r := newRecord(book, "s", "s")
			for range n {
				r.found(new(View), "instructions:legacy", nil)
			}
			v := new(View)
			for b.Loop() {
				r.found(v, "instructions:legacy", nil)
			}
		})
	}
}
