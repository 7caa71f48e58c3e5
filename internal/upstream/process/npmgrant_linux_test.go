package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGrantedSettingsOfNpmAreWhole: a server in a home of its own has the user's settings of npm with their tokens if
// they are granted, whether they are a file or a link, and whether its earlier starts had the grant or not.
func TestGrantedSettingsOfNpmAreWhole(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		const whole = "registry=https://npm.example.com/\n//npm.example.com/:_authToken=canary\n"
		for form, target := range map[string]string{"file": "", "relative link": "dotfiles/npmrc", "absolute link": "HOME/dotfiles/npmrc"} {
			home, private := s.place(who), s.place(who)
			npmrc := filepath.Join(home, ".npmrc")
			if target == "" {
				who.file(npmrc, whole)
			} else {
				who.file(filepath.Join(home, "dotfiles/npmrc"), whole)
				must(0, os.Symlink(strings.ReplaceAll(target, "HOME", home), npmrc))
			}
			for i, granted := range []bool{false, true, true, false, true} {
				box := Sandbox{Mode: Contain, Home: private}
				want := `[registry=https://npm.example.com/\n]`
				if granted {
					box.Grant([]string{"npm"}, nil, home)
					want = `[registry=https://npm.example.com/\n//npm.example.com/:_authToken=canary\n]`
				}
				said := s.prison(who, order{Homes: []string{home}, Env: []string{"HOME=" + home}, Sandbox: box, Args: []string{"read " + npmrc}})
				if got := said["read "+npmrc]; got != want {
					t.Errorf("%s, start %d, granted %v: %s, want %s", form, i, granted, got, want)
				}
			}
		}
	})
}
