package subscribe

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
)

// A filter wants the changes of a resource that it names and of its sub-resources, and of no
// other, whatever URIs it names.
func TestAFilterWantsTheResourcesThatItNamesAndTheirParts(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	uri := func() string {
		out := "f://"
		for range r.IntN(6) {
			out += string("ab/?#"[r.IntN(5)])
		}
		return out
	}
	for range 20_000 {
		f := &Filter{URIs: make(map[string]bool)}
		for range r.IntN(3) {
			f.URIs[uri()] = true
		}
		changed, want := uri(), ""
		for whole := range f.URIs {
			rest, prefix := strings.CutPrefix(changed, whole)
			part := prefix && (rest == "" || strings.ContainsAny(rest[:1], "/?#") || strings.ContainsAny(whole[len(whole)-1:], "/?#"))
			if part && len(whole) > len(want) {
				want = whole
			}
		}
		if got := f.Whole(changed); got != want || f.Wants(protocol.ResourceUpdated, URIParams(changed)) != (want != "") {
			t.Fatalf("%v wants %q as a part of %q, want %q", f.URIs, changed, got, want)
		}
	}
}

// A server chooses the length of a URI, and the comparison takes no longer than one pass over it
// for each resource of the filter.
func TestALongURIIsComparedInOnePass(t *testing.T) {
	t.Parallel()
	f := &Filter{URIs: make(map[string]bool)}
	for i := range 1000 {
		f.URIs["f://"+strings.Repeat("/", i)+"x"] = true
	}
	if whole := f.Whole("f://" + strings.Repeat("/", 16<<20)); whole != "" {
		t.Errorf("a part of %.40q", whole)
	}
}
