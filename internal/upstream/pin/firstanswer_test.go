package pin

import (
	"errors"
	"path/filepath"
	"testing"
)

// TestACommandThatNeverAnsweredIsAtItsFirstUse: until a server has answered, any change of its
// command is a first use, also after a restart. After its first answer a change is withheld.
// Under manual approval, and for a launcher, every change is withheld.
func TestACommandThatNeverAnsweredIsAtItsFirstUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	program(t, one, "one")
	program(t, two, "two")
	first := Process{Path: one, Args: []string{"a"}, Env: []string{"A"}, Dir: "/tmp", Follow: true}
	changes := map[string]func(*Process){
		"path": func(p *Process) { p.Path = two }, "environment": func(p *Process) { p.Env = []string{"A", "KEY"} },
		"directory": func(p *Process) { p.Dir = "/" }, "all": func(p *Process) { *p = Process{Path: two, Dir: "/", Follow: true} },
	}
	for what, change := range changes {
		for how, c := range map[string]struct{ answered, manual, launcher, want bool }{
			"never": {want: true}, "answered": {answered: true}, "manual": {manual: true}, "launcher": {launcher: true},
		} {
			pins := filepath.Join(t.TempDir(), "pins")
			p := first
			p.Follow = !c.launcher
			g := open(t, pins).Guard("a", false, &p)
			if err := g.Start(); err != nil {
				t.Fatal(err)
			}
			if c.answered {
				g.Meet("legacy", nil, nil)
			}
			change(&p)
			p.Follow = !c.launcher
			for range 2 { // the second time after a restart
				err := open(t, pins).Guard("a", c.manual, &p).Start()
				if (err == nil) != c.want || err != nil && !errors.Is(err, ErrWithheld) {
					t.Errorf("%s, %s: %v", what, how, err)
				}
			}
		}
	}
}
