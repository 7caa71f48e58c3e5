package process

import (
	"os/exec"
	"strings"
	"testing"
)

// TestAProgramInAHomeBringsItsDirectoryAlone: a program in the bin of a home comes without the directories beside that
// bin, which belong to the user, in whatever way the home is reached. An installation of its own comes whole.
func TestAProgramInAHomeBringsItsDirectoryAlone(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		base := s.place(who)
		home, link := base+"/home", base+"/link"
		var try []string
		for _, root := range []string{home, home + "/.local", home + "/tool"} {
			for _, name := range beside {
				who.file(root+"/"+name+"/x", "canary")
				try = append(try, "read "+root+"/"+name+"/x")
			}
			who.file(root+"/bin/x", "canary")
			if out, err := exec.Command("cp", who.self(), root+"/bin/server").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		if out, err := exec.Command("ln", "-s", home, link).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, at := range []string{home, link} {
			for program, root := range map[string]string{"/bin/server": "none", "/.local/bin/server": "none", "/tool/bin/server": home + "/tool/"} {
				said := s.prison(who, order{Homes: []string{at}, Env: []string{"HOME=" + base + "/private"}, Path: home + program,
					Args: append([]string{"as-prisoner"}, try...), Sandbox: Sandbox{Mode: Contain}})
				for _, attempt := range try {
					seen, want := strings.Contains(said[attempt], "canary"), strings.HasPrefix(attempt, "read "+root)
					if seen != want || said[attempt] == "" {
						t.Errorf("home %s, %s: %s: %q, want it seen: %v", at, program, attempt, said[attempt], want)
					}
				}
			}
		}
	})
}
