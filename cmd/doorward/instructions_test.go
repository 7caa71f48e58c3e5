package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/library"
)

func TestADiffIsUnified(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ what, a, b, want string }{
		{"the same", "x\n", "x\n", ""},
		{"one line", "a\nb\nc\n", "a\nB\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"},
		{"from nothing", "", "a\n", "@@ -0,0 +1 @@\n+a\n"},
		{"to nothing", "a\nb\n", "", "@@ -1,2 +0,0 @@\n-a\n-b\n"},
		{"a line end", "a", "a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"},
		{"far apart", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n", "one\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\ntwelve\n",
			"@@ -1,4 +1,4 @@\n-1\n+one\n 2\n 3\n 4\n@@ -9,4 +9,4 @@\n 9\n 10\n 11\n-12\n+twelve\n"},
		{"near", "1\n2\n3\n4\n5\n6\n7\n", "one\n2\n3\n4\n5\n6\nseven\n",
			"@@ -1,7 +1,7 @@\n-1\n+one\n 2\n 3\n 4\n 5\n 6\n-7\n+seven\n"},
		{"inserted", "a\nb\n", "a\nx\ny\nb\n", "@@ -1,2 +1,4 @@\n a\n+x\n+y\n b\n"},
	} {
		want := tc.want
		if want != "" {
			want = "--- one\n+++ two\n" + want
		}
		if got := unified("one", "two", tc.a, tc.b); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", tc.what, got, want)
		}
	}
}

// patched applies a unified diff, to show that it is complete.
func patched(t *testing.T, a, diff string) string {
	t.Helper()
	if diff == "" {
		return a
	}
	old, out, at := linesOf(a), "", 0
	var last byte
	for _, line := range linesOf(diff)[2:] {
		switch line[0] {
		case '@':
			var from, count int
			if n, _ := fmt.Sscanf(line, "@@ -%d,%d", &from, &count); n < 2 {
				count = 1
			}
			if count == 0 {
				from++
			}
			for ; at < from-1; at++ {
				out += old[at]
			}
		case ' ', '-':
			if last = line[0]; strings.TrimSuffix(old[at], "\n") != strings.TrimSuffix(line[1:], "\n") {
				t.Fatalf("line %d is %q, the diff says %q", at+1, old[at], line)
			}
			if line[0] == ' ' {
				out += old[at]
			}
			at++
		case '+':
			out, last = out+line[1:], '+'
		case '\\':
			if last == '+' {
				out = strings.TrimSuffix(out, "\n")
			}
		}
	}
	return out + strings.Join(old[at:], "")
}

func TestADiffTurnsOneTextIntoTheOther(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		var all []string
		for range r.IntN(30) {
			all = append(all, string(rune('a'+r.IntN(4))))
		}
		return strings.Join(all, "\n") + strings.Repeat("\n", r.IntN(2))
	}
	for range 3000 {
		a, b := text(), text()
		if got := patched(t, a, unified("a", "b", a, b)); got != b {
			t.Fatalf("%q to %q gives %q by\n%s", a, b, got, unified("a", "b", a, b))
		}
	}
}

func TestADiffOfLongTextsTakesNoLongTime(t *testing.T) {
	t.Parallel()
	a := strings.Repeat("a\n", document.MaxBytes/2)
	b := strings.Repeat("b\n", document.MaxBytes/2)
	began := time.Now()
	got := unified("a", "b", "x\n"+a, "x\n"+b)
	if want := len("--- a\n+++ b\n@@ -1,131073 +1,131073 @@\n x\n") + 3*document.MaxBytes; len(got) != want {
		t.Errorf("it has %d bytes, want %d", len(got), want)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestADiffWithoutVersionsComparesWithProduction(t *testing.T) {
	t.Parallel()
	production := []string{library.Production}
	for _, tc := range []struct {
		what     string
		versions []deliver.VersionInfo // newest first
		want     []string              // nil: an error
	}{
		{"one waits", []deliver.VersionInfo{{Version: "3"}, {Version: "2", Labels: production}, {Version: "1"}}, []string{"2", "3"}},
		{"none waits", []deliver.VersionInfo{{Version: "2", Labels: production}, {Version: "1"}}, []string{"1", "2"}},
		{"the one before is revoked", []deliver.VersionInfo{{Version: "3", Labels: production}, {Version: "2", Revoked: "now"}, {Version: "1"}}, []string{"1", "3"}},
		{"another audience", []deliver.VersionInfo{{Version: "3", Variant: "x"}, {Version: "2", Labels: production}, {Version: "1"}}, []string{"1", "2"}},
		{"one alone", []deliver.VersionInfo{{Version: "1", Labels: production}}, nil},
		{"none is production", []deliver.VersionInfo{{Version: "2"}, {Version: "1"}}, nil},
	} {
		if got, err := pairOf(tc.versions); !slices.Equal(got, tc.want) || (err == nil) != (tc.want != nil) {
			t.Errorf("%s: %q, %v", tc.what, got, err)
		}
	}
}

const voice = "---\nname: voice\nclass: voice\n---\nGravel.\n"

// docsIn writes files and returns their directory.
func docsIn(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := private0700(t)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestVerifyTellsEveryProblemWithItsLine(t *testing.T) {
	t.Parallel()
	template := func(body string) string { return "---\nname: notes\nclass: template\n---\n" + body + "\n" }
	for _, tc := range []struct {
		what  string
		files map[string]string
		docs  int
		want  []string // FILE:LINE of what is wrong; empty: it is fine
	}{
		{"fine", map[string]string{"voice.md": voice, "README.txt": "not a document"}, 1, nil},
		{"an unknown key", map[string]string{"a.md": "---\nname: a\nclass: voice\ncolour: red\n---\nx\n", "voice.md": voice}, 1, []string{"a.md:4"}},
		{"an include that is not there", map[string]string{"notes.md": template("{{> nothing}}")}, 1, []string{"notes.md:5"}},
		{"two of one name", map[string]string{"a.md": voice, "b.md": voice + "x\n"}, 2, []string{"b.md:2"}},
		{"something encrypted", map[string]string{"a.md": "age-encryption.org/v1\n"}, 0, []string{"a.md:1"}},
	} {
		docs, problems, err := documents(docsIn(t, tc.files))
		if err != nil {
			t.Fatal(err)
		}
		v := verifiedOf(docs, problems)
		var got []string
		for _, p := range v.Problems {
			got = append(got, fmt.Sprintf("%s:%d", filepath.Base(p.File), p.Line))
		}
		if v.Documents != tc.docs || v.OK != (tc.want == nil) || !slices.Equal(got, tc.want) {
			t.Errorf("%s: %+v", tc.what, v)
		}
	}
	if _, _, err := documents(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a directory that is not there is fine")
	}
}

func TestVerifyOfOneFile(t *testing.T) {
	t.Parallel()
	dir := docsIn(t, map[string]string{"voice.md": voice, "bad.md": "no header\n", "long.md": voice + strings.Repeat("x", document.MaxBytes)})
	for name, ok := range map[string]bool{"voice.md": true, "bad.md": false, "long.md": false} {
		docs, problems, err := documents(filepath.Join(dir, name))
		if v := verifiedOf(docs, problems); err != nil || v.OK != ok {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
}

func TestImportedDocumentsAreCheckedTogether(t *testing.T) {
	t.Parallel()
	dir := docsIn(t, map[string]string{"voice.md": voice, "notes.md": "---\nname: notes\nclass: template\n---\nx\n", ".hidden.md": "nothing", "a.txt": "nothing"})
	if err := os.Symlink(filepath.Join(dir, "voice.md"), filepath.Join(dir, "link.md")); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		what, from, stdin string
		docs              []string
		problems          int
	}{
		{"a directory", dir, "", []string{"notes", "voice"}, 0},
		{"a file", filepath.Join(dir, "voice.md"), "", []string{"voice"}, 0},
		{"a pipe", "-", voice, []string{"voice"}, 0},
		{"a pipe with nothing in it", "-", "", nil, 1},
		{"a pipe with something encrypted", "-", "-----BEGIN AGE ENCRYPTED FILE-----\n", nil, 1},
		{"the same name twice", docsIn(t, map[string]string{"a.md": voice, "b.md": voice}), "", []string{"voice", "voice"}, 1},
		{"no documents", t.TempDir(), "", nil, 0},
	} {
		g, err := gather(tc.from, strings.NewReader(tc.stdin))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, d := range g.drafts {
			names = append(names, d.doc.Name)
		}
		if !slices.Equal(names, tc.docs) || len(g.problems) != tc.problems {
			t.Errorf("%s: %q, %v", tc.what, names, g.problems)
		}
	}
	if _, err := gather(filepath.Join(dir, "none"), nil); err == nil {
		t.Error("a file that is not there is imported")
	}
	if g, err := gather("-", endless{t.Context()}); err != nil || len(g.problems) != 1 {
		t.Errorf("a pipe without an end: %v", err)
	}
}

func TestAnImportReplacesNothingUnasked(t *testing.T) {
	t.Parallel()
	g, err := gather("-", strings.NewReader(voice))
	if err != nil || len(g.drafts) != 1 {
		t.Fatal(err, g.problems)
	}
	version := g.drafts[0].doc.Version
	for _, tc := range []struct {
		what                    string
		there                   []deliver.VersionInfo
		fresh, unchanged, taken int
	}{
		{"nothing is there", nil, 1, 0, 0},
		{"the same", []deliver.VersionInfo{{Name: "voice", Version: version, File: "voice.md"}}, 0, 1, 0},
		{"another text", []deliver.VersionInfo{{Name: "voice", Version: "0", File: "voice.md"}}, 1, 0, 1},
		{"another audience", []deliver.VersionInfo{{Name: "voice", Variant: "x", Version: "0", File: "voice.md"}}, 1, 0, 0},
		{"a version without a file", []deliver.VersionInfo{{Name: "voice", Version: version}}, 1, 0, 0},
		{"another name", []deliver.VersionInfo{{Name: "notes", Version: "0", File: "notes.md"}}, 1, 0, 0},
	} {
		fresh, unchanged, taken := sorted(g.drafts, tc.there)
		if len(fresh) != tc.fresh || len(unchanged) != tc.unchanged || len(taken) != tc.taken {
			t.Errorf("%s: %d to put, %q unchanged, %q taken", tc.what, len(fresh), unchanged, taken)
		}
	}
}

func TestTheFileToEditIsOneFile(t *testing.T) {
	t.Parallel()
	versions := []deliver.VersionInfo{{Version: "aa1", File: "a.md"}, {Version: "aa0"}, {Version: "bb1", File: "b.md"}}
	for _, tc := range []struct {
		all           []deliver.VersionInfo
		version, want string // empty: an error
	}{
		{versions, "aa1", "a.md"}, {versions, "b", "b.md"}, {versions, "", ""}, {versions, "aa0", ""}, {versions, "cc", ""}, {versions[:2], "", "a.md"}, {nil, "", ""},
	} {
		if got, err := fileOf(tc.all, tc.version); got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%q of %d: %q, %v", tc.version, len(tc.all), got, err)
		}
	}
}

// Text of a document or of a store adds no line and contains no control character, in any
// form in which it is shown.
func TestNothingOfADocumentForgesALineOrMovesTheCursor(t *testing.T) {
	t.Parallel()
	for _, text := range hostile() {
		v := deliver.VersionInfo{Name: text, Variant: text, Version: text, Class: text, Tier: text, Labels: []string{text}, State: text, File: text, FirstSeen: text}
		read := deliver.Access{Session: text, Principal: text, Template: text, Revision: text, First: text, Last: text}
		for what, shown := range map[string]string{
			"a list":   versionsText([]deliver.VersionInfo{v}),
			"reads":    readsText([]deliver.Access{read}),
			"a canary": leakText(&read),
			"an act":   actText(&library.Act{Op: text, Name: text, Label: text, Moves: []library.Move{{Variant: text, From: text, To: text}}}),
			"a no act": actText(&library.Act{Op: text, Name: text}),
			"imported": importedText(imported{Imported: []deliver.VersionInfo{v}, Unchanged: []string{text}}),
			"problem":  mistakeText(deliver.Mistake{File: text, Line: 1, Text: text}),
		} {
			if lines := strings.Count(shown, "\n"); lines > 2 {
				t.Errorf("%q in %s: %d lines", text, what, lines)
			}
			for _, r := range shown {
				if r != '\n' && (r < ' ' || r >= 0x7f && r <= 0x9f || r == 0x2028 || r == 0x2029 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069) {
					t.Errorf("%q in %s: %U reaches the terminal", text, what, r)
				}
			}
		}
	}
}
