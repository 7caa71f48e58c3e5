package document

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const ref = "dwi-abcdefghijklmnop"

const refLine = "\n\nref: " + ref

func TestDress(t *testing.T) {
	t.Parallel()
	for _, c := range [][4]string{
		{"Pre.", "Text.", ref, "Pre.\n\nText." + refLine},
		{"", "Text.", ref, "Text." + refLine},
		{"Pre.", "Text.", "", "Pre.\n\nText."},
		{"Pre.", "", ref, "Pre." + refLine},
		{"", "", "", ""},
	} {
		if got := Dress(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("%q", got)
		}
	}
}

// texts is a view of documents of class instructions, and of others.
func texts(t testing.TB, others []string, bodies ...string) *View {
	t.Helper()
	var docs []*Document
	for i, body := range bodies {
		docs = append(docs, doc(t, fmt.Sprintf("%02d", i), "class: instructions", body))
	}
	for _, name := range others {
		docs = append(docs, doc(t, name, "class: voice", "voice"))
	}
	return set(t, docs...).View(Caller{}, nil)
}

func TestAComposedText(t *testing.T) {
	t.Parallel()
	const more = "\n\nMore: call the tool read of the server instructions (instructions__read); names: "
	line := strings.Repeat("A line of forty-eight bytes with its end, nearly\n", 40)
	words := strings.TrimSpace(strings.Repeat("word ", 500))
	giant := strings.Repeat("é", 2000)
	room := 1024 - len(DefaultPreamble+"\n\n"+refLine+more+"00.") // for a part, with the pointer to it
	ellipsis := room - len(" …")
	for what, c := range map[string]struct {
		view  *View
		max   int
		text  string // behind the preamble, before the ref
		names string
		cut   bool
	}{
		"all of it":                  {texts(t, nil, "First.", "Second."), 2048, "First.\n\nSecond.", "00 01", false},
		"all with others":            {texts(t, []string{"voice", "ask"}, "First."), 2048, "First." + more + "ask, voice.", "00", false},
		"nothing but others":         {texts(t, []string{"voice"}), 2048, more[2:] + "voice.", "", false},
		"all, to the byte":           {texts(t, nil, strings.Repeat("x", 2048-len(DefaultPreamble)-2-len(refLine))), 2048, strings.Repeat("x", 2048-len(DefaultPreamble)-2-len(refLine)), "00", false},
		"the rest is named":          {texts(t, []string{"voice"}, "First.", line, "Third."), 1024, "First.\n\n" + line[:49*11-1] + more + "01, 02, voice.", "00 01", true},
		"cut behind a word":          {texts(t, nil, words), 1024, words[:(ellipsis+1)/5*5-1] + " …" + more + "00.", "00", true},
		"cut within a giant word":    {texts(t, nil, giant), 1024, giant[:ellipsis/2*2] + " …" + more + "00.", "00", true},
		"the first does not fit":     {texts(t, nil, words, "Second."), 1024, words[:(ellipsis-3)/5*5-1] + " …" + more + "00, 01.", "00", true},
		"no room for a part":         {texts(t, nil, strings.Repeat("y", room+1), words), 1024, strings.Repeat("y", ellipsis-4) + " …" + more + "00, 01.", "00", true},
		"too little room for a part": {texts(t, nil, strings.Repeat("y", 520), words), 1024, strings.Repeat("y", 520) + more + "01.", "00", true},
		"hardly any room":            {texts(t, []string{"voice"}, words, words), 512, more[2:] + "00, 01, voice.", "", true},
		"less than there can be":     {texts(t, []string{"voice"}, words, words), 1, more[2:] + "00, 01, voice.", "", true},
	} {
		got := c.view.Compose(c.max, ref)
		if want := DefaultPreamble + "\n\n" + c.text + refLine; got.Text != want || strings.Join(got.Names, " ") != c.names || got.Cut != c.cut {
			t.Errorf("%s: %d bytes, %q, cut %v\n%s\nwant\n%s", what, len(got.Text), got.Names, got.Cut, got.Text, want)
		}
	}
}

func TestAnEmptyViewComposesToNothing(t *testing.T) {
	t.Parallel()
	for _, v := range []*View{texts(t, nil), set(t, doc(t, "preamble", "", "Pre.")).View(Caller{}, nil)} {
		if c := v.Compose(2048, ref); c.Text != "" || c.Names != nil || c.Cut {
			t.Errorf("%+v", c)
		}
	}
}

func TestIncludesAreInAComposedText(t *testing.T) {
	t.Parallel()
	v := set(t, doc(t, "a", "class: instructions", "Do \\{{this}}: {{> b}}"), doc(t, "b", "", "that."), doc(t, "preamble", "", "Ours.")).View(Caller{}, nil)
	want := "Ours.\n\nDo {{this}}: that.\n\nMore: call the tool read of the server instructions (instructions__read); names: b." + refLine
	if got := v.Compose(2048, ref); got.Text != want {
		t.Error(got.Text)
	}
}

func TestALongPreambleGivesWayWhereItLeavesNoRoom(t *testing.T) {
	t.Parallel()
	long := strings.TrimSpace(strings.Repeat("Preamble. ", 102))
	v := set(t, doc(t, "preamble", "", long), doc(t, "a", "class: instructions", "Text.")).View(Caller{}, nil)
	if got := v.Compose(len(long)+256, ref).Text; got != long+"\n\nText."+refLine {
		t.Error(got)
	}
	if got := v.Compose(len(long)+255, ref).Text; got != DefaultPreamble+"\n\nText."+refLine {
		t.Error(got)
	}
}

func TestThePointerNamesWhatItCan(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 500 {
		many = append(many, fmt.Sprintf("a-rather-long-name-%03d", i))
	}
	got := texts(t, many, "Text.").Compose(2048, ref)
	if !strings.Contains(got.Text, "names: a-rather-long-name-000, ") || !strings.Contains(got.Text, " and 493 more."+refLine) || len(got.Text) > 700 {
		t.Error(got.Text)
	}
	got = texts(t, []string{strings.Repeat("x", 63)}, strings.Repeat("word ", 500)).Compose(512, ref)
	if !strings.HasSuffix(got.Text, "\n\nMore: call the tool read of the server instructions (instructions__read)."+refLine) && !strings.Contains(got.Text, "names: 00 and 1 more.") {
		t.Error(got.Text)
	}
	for n := range 40 {
		for most := pointerLeast; most <= pointerMost; most++ {
			if p := pointer(many[:n], most); len(p) > most || (p == "") != (n == 0) || n > 0 && !strings.HasSuffix(p, ".") {
				t.Fatalf("%d names in %d bytes: %q", n, most, p)
			}
		}
	}
}

// Every composed text of random documents and sizes fits, is UTF-8, has its whole
// preamble and ref, is the same twice, and says whether it is cut.
func TestEveryComposedTextKeepsItsForm(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	words := []string{"word", "a", "é", "漢字", "👩\u200d💻", "\n", "\n\n", "```", "  ", strings.Repeat("long", 50), "end."}
	for range 400 {
		var docs []*Document
		for i := range r.IntN(6) {
			var body strings.Builder
			body.WriteString("x")
			for range r.IntN(1 << r.IntN(9)) {
				body.WriteString(words[r.IntN(len(words))] + " ")
			}
			class := []string{ClassInstructions, ClassInstructions, ClassVoice}[r.IntN(3)]
			docs = append(docs, doc(t, fmt.Sprintf("%s%d", strings.Repeat("n", r.IntN(50)), i), "class: "+class, body.String()))
		}
		if r.IntN(2) == 0 {
			docs = append(docs, doc(t, "preamble", "", strings.Repeat("P ", r.IntN(500))+"P"))
		}
		v := set(t, docs...).View(Caller{}, nil)
		if v.Empty() {
			continue
		}
		size := 512 + r.IntN(3000)
		c := v.Compose(size, ref)
		if again := v.Compose(size, ref); again.Text != c.Text || !slices.Equal(again.Names, c.Names) || again.Cut != c.Cut {
			t.Fatal("it is not the same twice")
		}
		if len(c.Text) > size || !utf8.ValidString(c.Text) || !strings.HasSuffix(c.Text, refLine) {
			t.Fatalf("%d bytes of %d:\n%s", len(c.Text), size, c.Text)
		}
		if !strings.HasPrefix(c.Text, v.Preamble()+"\n\n") && (len(v.Preamble()) <= size-256 || !strings.HasPrefix(c.Text, DefaultPreamble+"\n\n")) {
			t.Fatalf("the preamble is not whole:\n%s", c.Text)
		}
		whole := 0
		for _, d := range v.Documents() {
			in := slices.Contains(c.Names, d.Name)
			if d.Class != ClassInstructions {
				if in {
					t.Fatalf("%s is a %s", d.Name, d.Class)
				}
				continue
			}
			if strings.Contains(c.Text, "\n\n"+d.Body+"\n\n") && in {
				whole++
			} else if !c.Cut {
				t.Fatalf("%s is missing and nothing is cut:\n%s", d.Name, c.Text)
			}
			if in && !strings.Contains(c.Text, "\n\n"+d.Body[:min(len(d.Body), 10)]) {
				t.Fatalf("%s is said to be there:\n%s", d.Name, c.Text)
			}
		}
		if c.Cut && whole < len(c.Names)-1 || !slices.IsSorted(c.Names) {
			t.Fatalf("%q, %d whole", c.Names, whole)
		}
	}
}
