package pin

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// program writes an executable file and puts it in the place of the one at
// path.
func program(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestAChangedCommandIsNotStarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, pins := filepath.Join(dir, "server"), filepath.Join(dir, "pins")
	program(t, path, "one")
	p := Process{Path: path, Args: []string{"--key", "hunter2-secret"}, Env: []string{"B", "A"}, Dir: "/tmp"}
	start := func(p Process) error { return open(t, pins).Guard("a", false, &p).Start() }
	for range 2 {
		if err := start(p); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(pins, "a.json"))
	if err != nil || strings.Contains(string(b), "hunter2") {
		t.Errorf("an argument stands in the manifest: %v", err)
	}
	for what, change := range map[string]func(*Process){
		"argument": func(p *Process) { p.Args = []string{"--key", "other"} }, "argument more": func(p *Process) { p.Args = append(p.Args, "-v") },
		"split elsewhere": func(p *Process) { p.Args = []string{"--keyhunter2-secret"} },
		"environment":     func(p *Process) { p.Env = []string{"A"} }, "directory": func(p *Process) { p.Dir = "/" },
		"path": func(p *Process) { p.Path = filepath.Join(dir, "other"); program(t, p.Path, "one") },
	} {
		q := p
		change(&q)
		var held *Held
		if err := start(q); !errors.Is(err, ErrWithheld) || !errors.As(err, &held) || held.Reason != Changed || held.Item != "command" {
			t.Errorf("%s: %v", what, err)
		}
	}
	p.Env = []string{"A", "B"}
	if err := start(p); err != nil {
		t.Errorf("the order of variables is a change: %v", err)
	}
}

func TestAChangedProgramIsNotStarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "server")
	program(t, path, "one")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	s := open(t, filepath.Join(dir, "pins"))
	g := s.Guard("a", false, &Process{Path: link})
	if err := g.Start(); err != nil {
		t.Fatal(err)
	}
	program(t, path, "two")
	if err := g.Start(); !errors.Is(err, ErrWithheld) {
		t.Fatalf("other content behind the link: %v", err)
	}
	want(t, "withheld", s.held("a"), "command=changed")
	diff := Diff(s.Withheld("a")[0].Before, s.Withheld("a")[0].After)
	if len(diff) != 1 || diff[0].Path != "sha256" {
		t.Errorf("%+v", diff)
	}
	program(t, path, "one")
	if err := g.Start(); err != nil {
		t.Errorf("changed back: %v", err)
	}
	program(t, path, "two")
	want(t, "seen without a start", strings.Join(s.Items("a"), " "), "command")
	s.approveAll("a")
	if err := g.Start(); err != nil {
		t.Errorf("approved: %v", err)
	}
	os.Remove(path)
	if err := g.Start(); err == nil || errors.Is(err, ErrWithheld) {
		t.Errorf("a program that is not there: %v", err)
	}
}

func TestByHandNothingIsStartedBeforeItIsApproved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "server")
	program(t, path, "one")
	s := open(t, filepath.Join(dir, "pins"))
	g := s.Guard("a", true, &Process{Path: path})
	want(t, "before a start was tried", strings.Join(s.Items("a"), " "), "command")
	if err := g.Start(); !errors.Is(err, ErrWithheld) {
		t.Fatalf("%v", err)
	}
	s.approveAll("a")
	if err := g.Start(); err != nil {
		t.Error(err)
	}
	auto := s.Guard("b", false, &Process{Path: path})
	want(t, "a look approves nothing", strings.Join(s.Items("b"), " "), "")
	if len(auto.record.approved) != 0 {
		t.Error("a look was a first use")
	}
}

// The digest of a program that has not changed is not computed again. A guard
// stays the same over a reload.
func TestAnUnchangedProgramIsNotReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "server")
	program(t, path, "one")
	s := open(t, filepath.Join(dir, "pins"))
	p := Process{Path: path}
	g := s.Guard("a", false, &p)
	if s.Guard("a", false, &Process{Path: path}) != g || s.Guard("a", true, &p) == g {
		t.Error("a guard is not what it was made of")
	}
	doortest.Until(t, 20*time.Second, "the digest is kept", func() bool { // a file is settled after two seconds
		if _, _, err := s.files.digest(path); err != nil {
			t.Fatal(err)
		}
		s.files.mu.Lock()
		defer s.files.mu.Unlock()
		return len(s.files.byOf) > 0
	})
	real, _ := filepath.EvalSymlinks(path)
	s.files.mu.Lock()
	known := s.files.byOf[real]
	known.sum = "remembered"
	s.files.byOf[real] = known
	s.files.mu.Unlock()
	if _, sum, err := s.files.digest(path); err != nil || sum != "remembered" {
		t.Errorf("read again: %q %v", sum, err)
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	before := []byte(`{"name":"a","inputSchema":{"properties":{"x y":{"type":"string"}},"required":["x"]},"n":1.0,"gone":true}`)
	after := []byte(`{"name":"a","inputSchema":{"properties":{"x y":{"type":"number"}},"required":["x","y"]},"n":1,"text":"see\u200bn","list":[],"o":{}}`)
	var got []string
	for _, c := range Diff(before, after) {
		got = append(got, c.Path+": "+c.Before+" -> "+c.After)
	}
	want(t, "diff", strings.Join(got, "\n"), strings.Join([]string{
		`gone: true -> `,
		`inputSchema.properties."x y".type: "string" -> "number"`,
		`inputSchema.required[1]:  -> "y"`,
		`list:  -> []`,
		`n: 1.0 -> 1`,
		`o:  -> {}`,
		`text:  -> "see\u200bn"`,
	}, "\n"))
	if len(Diff(nil, before)) == 0 || len(Diff(before, before)) != 0 {
		t.Error("nothing, or the same")
	}
}
