package guide

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// set is one without problems.
func set(t testing.TB, docs ...*Document) *Set {
	t.Helper()
	s, problems := NewSet(docs)
	if problems != nil {
		t.Fatal(problems)
	}
	return s
}

// read renders a document without variables, "-" when there is none.
func read(t testing.TB, v *View, name string) string {
	t.Helper()
	text, err := v.Render(name, nil)
	if errors.Is(err, ErrUnknown) {
		return "-"
	}
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func names(docs []*Document) string {
	var all []string
	for _, d := range docs {
		all = append(all, d.Name)
	}
	return strings.Join(all, " ")
}

func TestTheMostSpecificAudienceWins(t *testing.T) {
	t.Parallel()
	var docs []*Document
	for body, audience := range map[string]string{
		"everybody":         `{}`,
		"production":        `{environments: [prod]}`,
		"any project":       `{projects: ["*"]}`,
		"demo projects":     `{projects: ["demo-*"]}`,
		"demo-1":            `{projects: [demo-1]}`,
		"demo-1 in prod":    `{projects: [demo-1], environments: [prod]}`,
		"reviewers":         `{roles: [reviewer]}`,
		"below 1000":        `{lineage: ["uid:1000"]}`,
		"below anybody":     `{lineage: ["uid:*"]}`,
		"users":             `{principals: ["uid:*"]}`,
		"user 1000":         `{principals: ["uid:1000", "uid:2000"]}`,
		"user 1000 in demo": `{principals: ["uid:1000"], projects: ["demo-*"]}`,
	} {
		docs = append(docs, doc(t, "a", "audience: "+audience, body))
	}
	s := set(t, docs...)
	for want, c := range map[string]Caller{
		"everybody":         {},
		"production":        {Environment: "prod"},
		"any project":       {Project: "x", Environment: "prod"},
		"demo projects":     {Project: "demo-", Environment: "prod"},
		"demo-1":            {Project: "demo-1"},
		"demo-1 in prod":    {Project: "demo-1", Environment: "prod"},
		"reviewers":         {Project: "demo-1", Role: "reviewer", Environment: "prod"},
		"below anybody":     {Principal: "spawn:1", Lineage: []string{"uid:5"}, Role: "reviewer"},
		"below 1000":        {Principal: "spawn:1", Lineage: []string{"spawn:0", "uid:1000"}, Project: "demo-1"},
		"users":             {Principal: "uid:1", Lineage: []string{"uid:1000"}},
		"user 1000":         {Principal: "uid:1000", Project: "x", Role: "reviewer"},
		"user 1000 in demo": {Principal: "uid:1000", Project: "demo-x"},
	} {
		if got := read(t, s.View(c, nil), "a"); got != want {
			t.Errorf("%+v gets %q, want %q", c, got, want)
		}
	}
}

func TestAllOfAnAudienceMustFit(t *testing.T) {
	t.Parallel()
	s := set(t, doc(t, "a", `audience: {principals: ["uid:1*"], projects: [x, y], roles: [r], lineage: ["uid:7"], environments: ["*"]}`, "text"))
	fits := Caller{"uid:1000", "y", "r", "prod", []string{"uid:9", "uid:7"}}
	if s.View(fits, nil).Empty() {
		t.Error("who fits gets nothing")
	}
	for _, c := range []Caller{{}, {"uid:2", "y", "r", "prod", fits.Lineage}, {"uid:1000", "z", "r", "prod", fits.Lineage}, {"uid:1000", "y", "s", "prod", fits.Lineage},
		{"uid:1000", "y", "r", "prod", []string{"uid:8"}}, {"uid:1000", "y", "r", "prod", nil}, {"uid:1000", "y", "r", "", fits.Lineage}, {"UID:1000", "y", "r", "prod", fits.Lineage}} {
		if !s.View(c, nil).Empty() {
			t.Errorf("%+v gets something", c)
		}
	}
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"a", "A", false}, {"*", "x", true}, {"a*", "a", true}, {"a*", "ba", false}, {"*a", "ba", true}, {"*a", "ab", false},
		{"a*c", "abc", true}, {"a*c", "ac", true}, {"a*c", "acb", false}, {"a*b*c", "axbxbxc", true}, {"a*b*c", "acb", false}, {"**", "x", true}, {"a**b", "ab", true},
		{"uid:*", "uid:1000", true}, {"uid:*", "loopback:uid:1", false}, {"?", "a", false}, {"[a]", "a", false}, {"*é", "né", true},
		{strings.Repeat("*a", 100) + "b", strings.Repeat("a", 250), false},
	} {
		if globs(c.pattern, c.s) != c.want {
			t.Errorf("%q of %q: %v", c.pattern, c.s, !c.want)
		}
	}
	// Two patterns overlap when there is a text for both; all short texts are tried.
	var texts []string
	for i := range 4 * 4 * 4 * 4 * 4 {
		s := ""
		for ; i > 0; i /= 4 {
			s += string("\x00abc"[i%4])
		}
		texts = append(texts, strings.ReplaceAll(s, "\x00", ""))
	}
	patterns := []string{"a", "b", "ab", "abc", "*", "a*", "*a", "*b", "ab*", "*ab", "a*b", "b*a", "a*b*c", "*b*", "ab*bc"}
	for _, p := range patterns {
		for _, q := range patterns {
			want := slices.ContainsFunc(texts, func(s string) bool { return s != "" && globs(p, s) && globs(q, s) })
			if overlap(p, q) != want {
				t.Errorf("%q and %q overlap: %v", p, q, !want)
			}
		}
	}
}

func TestEqualAudiencesAreToldAndGoByVersion(t *testing.T) {
	t.Parallel()
	for a, c := range map[string]struct {
		b      string
		rivals bool
	}{
		`{roles: [x, y]}`:                          {`{roles: [y, z]}`, true},
		`{roles: [x]}`:                             {`{roles: [y]}`, false},
		`{roles: ["a*"]}`:                          {`{roles: ["*b"]}`, true},
		`{roles: ["ab*"]}`:                         {`{roles: ["a*"]}`, false},
		`{roles: ["a*"]}  `:                        {`{roles: ["b*"]}`, false},
		`{roles: [a]}`:                             {`{roles: ["*"]}`, false},
		`{lineage: [x]}`:                           {`{lineage: [y]}`, true}, // a caller may have both above him
		`{lineage: [x]}  `:                         {`{lineage: ["y*"]}`, false},
		`{projects: [x], roles: [a, b]}`:           {`{projects: [x, y], roles: [b]}`, true},
		`{projects: [x], roles: [a]}`:              {`{projects: [x], roles: [b]}`, false},
		`{projects: [x], environments: [p]}`:       {`{projects: [x]}`, false},
		`{principals: ["uid:*"], projects: [p]}`:   {`{principals: ["uid:*"], projects: ["p", q]}`, true},
		`{principals: ["uid:1"], projects: ["*"]}`: {`{principals: ["uid:2"], projects: ["**"]}`, false},
	} {
		one, two := doc(t, "a", "audience: "+a, "one"), doc(t, "a", "audience: "+c.b, "two")
		one.File, two.File = "one.md", "two.md"
		s, problems := NewSet([]*Document{one, two})
		if len(s.Documents()) != 2 || (len(problems) == 1) != c.rivals {
			t.Errorf("%s and %s: %v", a, c.b, problems)
			continue
		}
		if !c.rivals {
			continue
		}
		first, second := one, two
		if two.Version < one.Version {
			first, second = two, one
		}
		if p := problems[0]; !p.Warning || p.File != second.File || p.Line != 2 || !strings.Contains(p.Text, first.File) {
			t.Errorf("%v", p)
		}
		again, _ := NewSet([]*Document{two, one})
		both := Caller{"uid:1", "x", "y", "p", []string{"x", "y"}}
		for _, both.Role = range []string{"y", "ab", "b"} {
			for _, both.Project = range []string{"x", "p"} {
				if v := s.View(both, nil); v.Revision() != again.View(both, nil).Revision() || !v.Empty() && read(t, v, "a") != first.Body {
					t.Errorf("%s and %s: the order of the files decides, or the later version", a, c.b)
				}
			}
		}
	}
}

func TestWhatIsNotPermittedIsNotThere(t *testing.T) {
	t.Parallel()
	s := set(t,
		doc(t, "a", "", "a for all"),
		doc(t, "a", `audience: {roles: [r]}`, "a for r"),
		doc(t, "b", "", "b for all, with {{> a}}"),
		doc(t, "c", "tier: structural", "c with {{> b}}"),
		doc(t, "c", "tier: structural\naudience: {roles: [r]}", "c for r"),
		doc(t, "d", "tier: structural", "d"))
	only := func(allowed ...string) func(*Document) bool {
		return func(d *Document) bool { return slices.Contains(allowed, d.Body) }
	}
	for _, c := range []struct {
		caller Caller
		may    func(*Document) bool
		want   string
	}{
		{Caller{}, nil, "a for all|b for all, with a for all|c with b for all, with a for all|d"},
		{Caller{Role: "r"}, nil, "a for r|b for all, with a for r|c for r|d"},
		// The specific one is not permitted: the next one is taken.
		{Caller{Role: "r"}, func(d *Document) bool { return d.Body != "a for r" }, "a for all|b for all, with a for all|c for r|d"},
		// An include that is not to be had takes all with it that include it.
		{Caller{}, func(d *Document) bool { return d.Name != "a" }, "-|-|-|d"},
		{Caller{}, func(d *Document) bool { return d.Name != "b" }, "a for all|-|-|d"},
		{Caller{}, func(d *Document) bool { return d.Tier == Structural }, "-|-|-|d"},
		{Caller{Role: "r"}, func(d *Document) bool { return d.Tier == Structural }, "-|-|c for r|d"},
		{Caller{Role: "r"}, func(d *Document) bool { return s.Tier(d) == Structural }, "-|-|c for r|d"},
		{Caller{}, only(), "-|-|-|-"},
	} {
		v := s.View(c.caller, c.may)
		var got []string
		for _, name := range []string{"a", "b", "c", "d"} {
			got = append(got, read(t, v, name))
			if (v.Find(name) == nil) != (got[len(got)-1] == "-") {
				t.Errorf("%s is found and not read, or the other way", name)
			}
			if _, err := v.Text(name); (err == nil) != (v.Find(name) != nil) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if joined := strings.Join(got, "|"); joined != c.want {
			t.Errorf("%+v gets %s, want %s", c.caller, joined, c.want)
		}
	}
	// A more specific document whose include is not to be had gives way too.
	s = set(t, doc(t, "a", "", "general"), doc(t, "a", `audience: {roles: [r]}`, "for r, with {{> b}}"), doc(t, "b", `audience: {principals: [p]}`, "b"))
	if got := read(t, s.View(Caller{Role: "r"}, nil), "a"); got != "general" {
		t.Error(got)
	}
	if got := read(t, s.View(Caller{Role: "r", Principal: "p"}, nil), "a"); got != "for r, with b" {
		t.Error(got)
	}
}

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
	// A document of another set, such as an earlier version.
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

func TestWhatCannotBeServedIsLeftOutAndTold(t *testing.T) {
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

// A set of the size that a store may have is made in no time, whatever shape
// its includes have.
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
	if d := time.Since(began); d > 10*time.Second || v.Find("v") == nil {
		t.Errorf("it took %v", d)
	}
	// And when all of them are one circle.
	began = time.Now()
	docs[999] = doc(t, "d999", "", "{{> d0}}")
	s, problems := NewSet(docs)
	if d := time.Since(began); d > 10*time.Second || len(s.Documents()) != 300 || len(problems) != 1000 || len(problems.Error()) > 300_000 {
		t.Errorf("it took %v; %d documents, %d problems", d, len(s.Documents()), len(problems))
	}
}

func TestARevisionIsWhatOneReaderGets(t *testing.T) {
	t.Parallel()
	a, b, c := doc(t, "a", "", "1"), doc(t, "b", "", "2"), doc(t, "b", "audience: {roles: [r]}", "3")
	s := set(t, a, b, c)
	all, r := s.View(Caller{}, nil), s.View(Caller{Role: "r"}, nil)
	if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(all.Revision()) || all.Revision() == r.Revision() || all.Equal(r) || r.Equal(all) {
		t.Errorf("%s and %s", all.Revision(), r.Revision())
	}
	if same := set(t, c, b, a).View(Caller{Principal: "x"}, nil); !same.Equal(all) || same.Revision() != all.Revision() {
		t.Error("the same documents make another revision")
	}
	if set(t, a, b).View(Caller{Role: "r"}, nil).Revision() != all.Revision() {
		t.Error("what the reader does not get is in the revision")
	}
	if set(t, a).View(Caller{}, nil).Equal(all) || set(t, a, doc(t, "b", "", "2 ")).View(Caller{}, nil).Equal(all) {
		t.Error("another document makes no other revision")
	}
	none, _ := NewSet(nil)
	if v := none.View(Caller{}, nil); !v.Empty() || v.Equal(all) || v.Revision() == "" || v.Equal(nil) || v.Documents() == nil {
		t.Errorf("an empty view: %+v", v)
	}
	var nothing *View
	if !nothing.Equal(nil) || nothing.Equal(all) || all.Equal(nil) {
		t.Error("no view equals one")
	}
	// Made with Python from the two files, so that another program can.
	v := set(t, parse(t, "b", "---\nname: b\nclass: voice\n---\ny"), parse(t, "a", "---\nname: a\nclass: voice\n---\nx")).View(Caller{}, nil)
	if v.Revision() != "4ff97c428d8e927ecc7165cbd8840e04738c3135b64f101d752944d4cf347717" {
		t.Error(v.Revision())
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

func TestThePreambleIsTheReadersOwn(t *testing.T) {
	t.Parallel()
	s := set(t, doc(t, "preamble", "", "Ours."), doc(t, "preamble", "audience: {roles: [r]}", `For \{{r}}.`))
	for want, v := range map[string]*View{
		"Ours.":         s.View(Caller{}, nil),
		"For {{r}}.":    s.View(Caller{Role: "r"}, nil),
		DefaultPreamble: s.View(Caller{}, func(*Document) bool { return false }),
	} {
		if v.Preamble() != want || !v.Empty() {
			t.Errorf("%q, want %q", v.Preamble(), want)
		}
	}
	if len(DefaultPreamble) > MaxPreamble {
		t.Error("the default is longer than any other may be")
	}
}
