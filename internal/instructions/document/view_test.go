package document

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// set makes a set that has no problems.
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
		t.Error("a caller that fits gets nothing")
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

func TestRivalAudiencesAreReportedAndOrderedByVersion(t *testing.T) {
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
		`{lineage: [x]}`:                           {`{lineage: [y]}`, true}, // a caller may have both as ancestors
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

func TestAForbiddenDocumentDoesNotExistForItsReader(t *testing.T) {
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
		// The most specific document is not permitted: the next one is taken.
		{Caller{Role: "r"}, func(d *Document) bool { return d.Body != "a for r" }, "a for all|b for all, with a for all|c for r|d"},
		// A document whose include is not permitted is not there either.
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
	// A more specific document whose include is not permitted gives way too.
	s = set(t, doc(t, "a", "", "general"), doc(t, "a", `audience: {roles: [r]}`, "for r, with {{> b}}"), doc(t, "b", `audience: {principals: [p]}`, "b"))
	if got := read(t, s.View(Caller{Role: "r"}, nil), "a"); got != "general" {
		t.Error(got)
	}
	if got := read(t, s.View(Caller{Role: "r", Principal: "p"}, nil), "a"); got != "for r, with b" {
		t.Error(got)
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
	// Computed with Python from the two files: another program can compute it too.
	v := set(t, parse(t, "b", "---\nname: b\nclass: voice\n---\ny"), parse(t, "a", "---\nname: a\nclass: voice\n---\nx")).View(Caller{}, nil)
	if v.Revision() != "4ff97c428d8e927ecc7165cbd8840e04738c3135b64f101d752944d4cf347717" {
		t.Error(v.Revision())
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
