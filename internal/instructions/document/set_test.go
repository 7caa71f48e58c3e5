package document

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestIncludingABehaviouralDocumentIsBehavioural(t *testing.T) {
	t.Parallel()
	s := set(t,
		doc(t, "low", "tier: structural", "x"),
		doc(t, "low", "audience: {roles: [r]}", "behavioural for some"),
		doc(t, "plain", "tier: structural", "x"),
		doc(t, "one", "tier: structural", "{{> low}}"),
		doc(t, "two", "tier: structural", "{{> plain}} {{> one}}"),
		doc(t, "three", "tier: structural", "{{> plain}}"),
		doc(t, "four", "", "{{> plain}}"))
	want := map[string]string{"plain": Structural, "one": Behavioural, "two": Behavioural, "three": Structural, "four": Behavioural}
	for _, d := range s.Documents() {
		if w := want[d.Name]; w != "" && s.Tier(d) != w {
			t.Errorf("%s is %s", d.Name, s.Tier(d))
		}
	}
	// A document that is not in the set, such as an earlier version.
	if got := s.Tier(doc(t, "old", "tier: structural", "{{> one}}")); got != Behavioural {
		t.Error(got)
	}
	if got := s.Tier(doc(t, "old", "tier: structural", "{{> gone}}")); got != Behavioural {
		t.Error(got)
	}
	if got := s.Tier(doc(t, "old", "tier: structural", "{{> three}}")); got != Structural {
		t.Error(got)
	}
}

func TestDocumentsThatCannotBeServedAreReported(t *testing.T) {
	t.Parallel()
	chain := func(n int) (docs []*Document) {
		for i := range n {
			docs = append(docs, doc(t, fmt.Sprintf("d%02d", i), "", fmt.Sprintf("%d\n{{> d%02d}}", i, i+1)))
		}
		return append(docs, doc(t, fmt.Sprintf("d%02d", n), "", "end"))
	}
	big := strings.Repeat("x", 100_000)
	named := func(file string, d *Document) *Document { d.File = file; return d }
	for what, c := range map[string]struct {
		docs     []*Document
		problems string // lines; each is FILE:LINE: and a part of the text
		left     string
	}{
		"twice the same file": {[]*Document{named("1.md", doc(t, "a", "", "x")), named("2.md", doc(t, "a", "", "x"))}, "2.md:2: a is in 1.md already", "a"},
		"two for one audience": {[]*Document{named("2.md", doc(t, "a", "audience: {roles: [r, s]}", "x")), named("1.md", doc(t, "a", "audience: {roles: [s, r]}", "y"))},
			"1.md:2: a is in 2.md already", "a"},
		"an unknown include": {[]*Document{doc(t, "a", "", "x\n\n{{> gone}}"), doc(t, "b", "", "{{> c}}"), doc(t, "c", "", "{{> a}}"), doc(t, "d", "", "x")},
			"a.md:8: gone, which is included here, is not there\nb.md:6: c, which\nc.md:6: a, which", "d"},
		"itself": {[]*Document{doc(t, "a", "", "x{{> a}}"), doc(t, "b", "", "x")}, "a.md:6: includes itself: a > a", "b"},
		"a cycle": {[]*Document{doc(t, "a", "", "{{> b}}"), doc(t, "b", "", "\n\n{{> c}}"), doc(t, "c", "", "{{> a}}"), doc(t, "d", "", "{{> c}}"), doc(t, "e", "", "x")},
			"a.md:6: itself: a > b > c > a\nb.md:8: itself: b > c > a > b\nc.md:6: itself: c > a > b > c\nd.md:6: c, which is included here", "e"},
		"a cycle by variants of different readers": {[]*Document{doc(t, "a", "audience: {roles: [r]}", "{{> b}}"), doc(t, "a", "", "x"), doc(t, "b", "audience: {roles: [s]}", "{{> a}}"), doc(t, "b", "", "x")},
			"a.md:6: itself: a > b > a\nb.md:6: itself: b > a > b", "a b"},
		"nine deep":      {chain(9), "d00.md:7: more than 8 deep", "d01 d02 d03 d04 d05 d06 d07 d08 d09"},
		"eight deep":     {chain(8), "", "d00 d01 d02 d03 d04 d05 d06 d07 d08"},
		"a long chain":   {chain(12), "d00.md:7: not there\nd01.md:7: not there\nd02.md:7: not there\nd03.md:7: more than 8 deep", "d04 d05 d06 d07 d08 d09 d10 d11 d12"},
		"more than fits": {[]*Document{doc(t, "a", "", big), doc(t, "b", "", "{{> a}}{{> a}}"), doc(t, "c", "", "{{> a}}\n{{> b}}")}, "c.md:7: with the document b, which is included here, the text is larger", "a b"},
		"a billion": {[]*Document{doc(t, "a", "", strings.Repeat("lol", 1000)), doc(t, "b", "", strings.Repeat("{{> a}}", 1000)), doc(t, "c", "", strings.Repeat("{{> b}}", 1000))},
			"b.md:6: larger than 262144\nc.md:6: b, which", "a"},
		"a variable that is not declared": {[]*Document{doc(t, "a", "variables: {x: {}, y: {}}", "{{x}}"), doc(t, "b", "", "{{> a}}"), doc(t, "c", "variables: {x: {type: string}}", "{{> a}}"), doc(t, "d", "class: voice", "{{> a}}")},
			"b.md:6: needs the variable x\nd.md:5: needs the variable x", "a c"},
		"a preamble that is too long": {[]*Document{doc(t, "preamble", "", big[:1025]), doc(t, "preamble", "audience: {roles: [r]}", big[:1024])}, "preamble.md:2: at most 1024 bytes", "preamble"},
	} {
		s, problems := NewSet(c.docs)
		if got := names(slices.CompactFunc(s.Documents(), func(a, b *Document) bool { return a.Name == b.Name })); got != c.left {
			t.Errorf("%s: left is %q, want %q", what, got, c.left)
		}
		want := strings.Split(c.problems, "\n")
		if c.problems == "" {
			want = nil
		}
		if len(problems) != len(want) {
			t.Errorf("%s:\n%v", what, problems)
			continue
		}
		for i, w := range want {
			at, text, _ := strings.Cut(w, ": ")
			if p := problems[i]; fmt.Sprintf("%s:%d", p.File, p.Line) != at || !strings.Contains(p.Text, text) || p.Warning {
				t.Errorf("%s: %v, want %s", what, p, w)
			}
		}
	}
}

// The largest set of a store is made within half a minute, whatever shape its
// includes have.
func TestALargeSetIsMadeQuickly(t *testing.T) {
	t.Parallel()
	var docs []*Document
	for i := range 1000 {
		body := "x"
		for j := 1; j <= 30 && i+j < 1000; j++ {
			body += fmt.Sprintf(" {{> d%d}}", i+j)
		}
		docs = append(docs, doc(t, fmt.Sprint("d", i), "", body))
	}
	for i := range 300 {
		docs = append(docs, doc(t, "v", fmt.Sprintf(`audience: {principals: ["uid:%d", "x%d*"]}`, i, i), "x"))
	}
	began := time.Now()
	s, _ := NewSet(docs)
	v := s.View(Caller{Principal: "uid:7"}, nil)
	if d := time.Since(began); d > 2*time.Minute || v.Find("v") == nil {
		t.Errorf("it took %v", d)
	}
	// The same for one cycle of all documents.
	began = time.Now()
	docs[999] = doc(t, "d999", "", "{{> d0}}")
	s, problems := NewSet(docs)
	if d := time.Since(began); d > 2*time.Minute || len(s.Documents()) != 300 || len(problems) != 1000 || len(problems.Error()) > 300_000 {
		t.Errorf("it took %v; %d documents, %d problems", d, len(s.Documents()), len(problems))
	}
}

func TestWithReplacesTheDocumentsOfANameWhole(t *testing.T) {
	t.Parallel()
	s := set(t, doc(t, "a", "", "new"), doc(t, "a", "audience: {roles: [r]}", "new for r"), doc(t, "b", "", "b and {{> a}}"))
	old, problems := s.With(doc(t, "a", "", "old"))
	if problems != nil || read(t, old.View(Caller{Role: "r"}, nil), "b") != "b and old" || read(t, s.View(Caller{Role: "r"}, nil), "b") != "b and new for r" {
		t.Errorf("%v %s", problems, names(old.Documents()))
	}
	if diff := cmp.Diff("a a b", names(s.Documents())); diff != "" {
		t.Error(diff)
	}
	if broken, problems := s.With(doc(t, "a", "", "{{> gone}}")); len(problems) != 2 || len(broken.Documents()) != 0 {
		t.Errorf("%v", problems)
	}
}
