package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/doorward/doorward/internal/daemon/config"
)

var updateMistakes = flag.Bool("update", false, "rewrite the expected problems in testdata/mistakes")

// unseenText puts characters that an editor does not show in the place of the names which
// the files of testdata/mistakes use for them.
var unseenText = strings.NewReplacer("<TAB>", "\t", "<CR>", "\r", "<BOM>", "\ufeff", "<LATIN1>", "\xe9", "<NUL>", "\x00", "<LS>", "\u2028")

// A mistake is one configuration and what `doorward check` says of it. The
// files of a case are NAME/doorward.yaml or NAME/doorward.json, what it refers
// to, and NAME/want; a name that ends with @0666 has that mode, and @0000 is
// no file at all.
type mistake struct {
	name  string
	files []txtar.File
	want  string
}

// For each mistake in a configuration, check names the file, the line and the key, and what
// to write instead.
func TestMistakes(t *testing.T) {
	t.Parallel()
	if os.Getenv("DOORWARD_TOKEN") != "" {
		t.Fatal("DOORWARD_TOKEN is set, which changes what listeners may do: unset it")
	}
	paths, err := filepath.Glob("testdata/mistakes/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	count := 0
	for _, path := range paths {
		ar, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		cases := mistakesIn(ar)
		count += len(cases)
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) { checkMistakes(t, path, ar, cases) })
	}
	if count < 60 {
		t.Errorf("%d cases, want at least 60", count)
	}
}

// mistakesIn takes an archive apart by folder.
func mistakesIn(ar *txtar.Archive) (cases []*mistake) {
	for _, f := range ar.Files {
		name, file, _ := strings.Cut(f.Name, "/")
		if len(cases) == 0 || cases[len(cases)-1].name != name {
			cases = append(cases, &mistake{name: name})
		}
		m := cases[len(cases)-1]
		if file == "want" {
			m.want = string(f.Data)
			continue
		}
		m.files = append(m.files, txtar.File{Name: file, Data: f.Data})
	}
	return cases
}

func checkMistakes(t *testing.T, path string, ar *txtar.Archive, cases []*mistake) {
	updated := txtar.Archive{Comment: ar.Comment}
	for _, m := range cases {
		dir := t.TempDir()
		problems := m.check(t, dir)
		got := m.shown(problems, dir)
		if *updateMistakes {
			updated.Files = append(updated.Files, m.archived(got)...)
			continue
		}
		if diff := cmp.Diff(m.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", m.name, diff)
		}
		if !m.wholeFile() {
			everyLineNamed(t, m.name, problems)
		}
	}
	if *updateMistakes {
		if err := os.WriteFile(path, txtar.Format(&updated), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// wholeFile: the mistake is the file itself, so that no line of it is to blame.
func (m *mistake) wholeFile() bool { return strings.HasPrefix(m.name, "file-") }

func everyLineNamed(t *testing.T, name string, problems []config.Problem) {
	for _, p := range problems {
		if p.Line == 0 || p.File == "" || p.Problem == "" {
			t.Errorf("%s: no line: %s", name, p)
		}
	}
}

// check is what `doorward check` does before it prints.
func (m *mistake) check(t *testing.T, dir string) []config.Problem {
	t.Helper()
	for _, f := range m.files {
		m.place(t, dir, f)
	}
	o := newInvocation()
	o.takesHere, o.unvetted = true, true
	o.config, o.state, o.runtime = filepath.Join(dir, m.main()), filepath.Join(dir, "state"), filepath.Join(dir, "run")
	return o.allProblems("")
}

// main is the configuration, which is the first file of a case.
func (m *mistake) main() string { name, _ := modeOf(m.files[0].Name); return name }

func modeOf(name string) (file string, mode os.FileMode) {
	file, octal, found := strings.Cut(name, "@")
	if !found {
		return file, 0o600
	}
	for _, digit := range octal {
		mode = mode<<3 | os.FileMode(digit-'0')
	}
	return file, mode
}

func (m *mistake) place(t *testing.T, dir string, f txtar.File) {
	t.Helper()
	name, mode := modeOf(f.Name)
	if mode == 0 {
		return
	}
	content := unseenText.Replace(strings.ReplaceAll(string(f.Data), "$DIR", dir))
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// shown is the text of problems without what differs between machines.
func (m *mistake) shown(problems []config.Problem, dir string) string {
	var b strings.Builder
	for _, p := range problems {
		b.WriteString(p.String() + "\n")
	}
	text := strings.ReplaceAll(b.String(), filepath.Join(dir, m.main()), m.main())
	text = strings.ReplaceAll(text, dir, "$DIR")
	return strings.ReplaceAll(text, os.Getenv("PATH"), "$PATH")
}

func (m *mistake) archived(got string) (files []txtar.File) {
	for _, f := range append(m.files, txtar.File{Name: "want", Data: []byte(got)}) {
		files = append(files, txtar.File{Name: m.name + "/" + f.Name, Data: f.Data})
	}
	return files
}
