package pin

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAnEditOfTheArgumentsAloneIsFollowed: a changed command is started only if
// nothing but its arguments was changed, under automatic approval, and the
// configuration in force has them. Any other combination of changes starts nothing.
func TestAnEditOfTheArgumentsAloneIsFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	program(t, one, "one")
	program(t, two, "two")
	changes := []func(*Process){
		func(p *Process) { p.Path = two }, func(p *Process) { p.Env = []string{"A", "LD_PRELOAD"} }, func(p *Process) { p.Dir = "/" },
	}
	edits := [][]string{{"-y", "b"}, {}, {"-y"}, {"-y", "a", "--more"}, {"a", "-y"}, nil}
	for n := range 400 {
		s := open(t, filepath.Join(t.TempDir(), "pins"))
		p := Process{Path: one, Args: []string{"-y", "a"}, Shown: []string{"-y", "a"}, Env: []string{"A"}, Dir: "/tmp", Follow: rand.IntN(4) > 0}
		old := s.Guard("a", false, &p)
		if err := old.Start(); err != nil {
			t.Fatal(err)
		}
		old.Judge(Asker{}, Tools, tools("add=adds"))
		q, other, manual, stale := p, false, rand.IntN(5) == 0, rand.IntN(5) == 0
		q.Args = edits[n%len(edits)]
		q.Shown = q.Args
		for _, change := range changes {
			if rand.IntN(4) == 0 {
				other = true
				change(&q)
			}
		}
		g := s.Guard("a", manual, &q)
		if stale { // the configuration has changed again
			s.Guard("a", manual, &Process{Path: two})
		}
		err := g.Start()
		followed := q.Follow && !other && !manual && !stale
		if followed != (err == nil) || err != nil && !errors.Is(err, ErrWithheld) {
			t.Fatalf("other %v, manual %v, stale %v, follow %v: %v", other, manual, stale, q.Follow, err)
		}
		if followed {
			want(t, "the definitions", judged(g.Judge(Asker{Client: []string{"", "other"}[n%2]}, Tools, tools("add=adds", "evil=new"))), "add")
			want(t, "withheld", s.held("a"), "tool:evil=new")
			if old.Start() == nil {
				t.Fatal("the command of before is approved too, or took the approval back")
			}
		}
		if followed != (s.Edited("a") != nil) {
			t.Fatalf("told as an edit: %v", s.Edited("a"))
		}
	}
}

// TestTheArgumentsAreShown: a command that is withheld is shown with the arguments of
// before and of now, also after a restart. A manifest of an older version, which
// lacks them, gets them at the next start.
func TestTheArgumentsAreShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, pins := filepath.Join(dir, "server"), filepath.Join(dir, "pins")
	program(t, path, "one")
	old := Process{Path: path, Args: []string{"-y", "hunter2"}} // Shown was not known
	if err := open(t, pins).Guard("a", true, &old).Start(); !errors.Is(err, ErrWithheld) {
		t.Fatal(err)
	}
	s := open(t, pins)
	g := s.Guard("a", true, &old)
	_ = g.Start() // withheld, and to be approved
	s.approveAll("a")
	now := old
	now.Shown = []string{"-y", "[secret]"}
	if err := open(t, pins).Guard("a", true, &now).Start(); err != nil {
		t.Fatal(err)
	}
	s = open(t, pins)
	next := Process{Path: path, Args: []string{"-y", "hunter3", "my notes"}, Shown: []string{"-y", "[secret]", "my notes"}}
	_ = s.Guard("a", true, &next).Start() // withheld
	lines := func(w Withheld) string {
		var out []string
		for _, c := range w.Changes() {
			out = append(out, c.Path+": "+c.Before+" -> "+c.After)
		}
		return strings.Join(out, "\n")
	}
	all := s.Withheld("a")
	if len(all) != 1 {
		t.Fatalf("%+v", all)
	}
	want(t, "the change", lines(all[0]), `arguments: -y [secret] -> -y [secret] "my notes"`)
	next = Process{Path: path, Args: []string{"-y", "hunter4"}, Shown: []string{"-y", "[secret]"}}
	_ = s.Guard("a", true, &next).Start() // withheld
	want(t, "a hidden change", lines(s.Withheld("a")[0]), `arguments: -y [secret] (the part that is not shown differs) -> -y [secret]`)
	if !slices.Equal(s.Withheld("a")[0].Was, []string{"-y", "[secret]"}) {
		t.Errorf("%+v", s.Withheld("a")[0])
	}
}
